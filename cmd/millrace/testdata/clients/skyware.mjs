// Reads events with @skyware/jetstream and prints them, a line of JSON each:
//
//   node skyware.mjs '{"endpoint":"ws://localhost:6008/subscribe","wantedCollections":["app.bsky.feed.like"],"cursor":1}'
//
// Each line on standard input is an options update. It ends with its input.
import { Jetstream } from "@skyware/jetstream";
import { createInterface } from "node:readline";
import WebSocket from "ws";

const jetstream = new Jetstream({ ...JSON.parse(process.argv[2]), ws: WebSocket });
const print = (event) => process.stdout.write(JSON.stringify(event) + "\n");
for (const kind of ["commit", "identity", "account"]) jetstream.on(kind, print);
jetstream.on("open", () => process.stderr.write("open\n"));
jetstream.on("error", (error) => process.stderr.write(`error: ${error?.message}\n`));
jetstream.start();

const input = createInterface({ input: process.stdin });
input.on("line", (line) => jetstream.updateOptions(JSON.parse(line)));
input.on("close", () => process.exit(0));

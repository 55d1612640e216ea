// Reads events with @atcute/jetstream and prints them, a line of JSON each:
//
//   node atcute.mjs '{"url":"ws://localhost:6008","wantedCollections":["app.bsky.feed.like"],"cursor":1}'
//
// Each line on standard input is an options update. It ends with its input.
import { JetstreamSubscription } from "@atcute/jetstream";
import { createInterface } from "node:readline";
import WebSocket from "ws";

const subscription = new JetstreamSubscription({
  ...JSON.parse(process.argv[2]),
  ws: { WebSocket },
  onConnectionOpen: () => process.stderr.write("open\n"),
  onConnectionError: (event) => process.stderr.write(`error: ${event.message}\n`),
  onError: (error) => process.stderr.write(`invalid event: ${error.message}\n`),
});

const input = createInterface({ input: process.stdin });
input.on("line", (line) => subscription.updateOptions(JSON.parse(line)));
input.on("close", () => process.exit(0));

for await (const event of subscription) process.stdout.write(JSON.stringify(event) + "\n");

// Prints a server's events, which come compressed with millrace's built-in dictionary:
//
//   npm install && node client.mjs [ws://localhost:6008] [number of events]
import zstd from "@bokuweb/zstd-wasm";
import WebSocket from "ws";

const server = process.argv[2] ?? "ws://localhost:6008";
const count = Number(process.argv[3] ?? Infinity);
const web = server.replace(/^ws/, "http");

const id = 51001; // the built-in one, which every millrace serves; /dictionaries lists all

// The file of an ID never changes: keep it, rather than fetch it each time.
const response = await fetch(`${web}/dictionaries/${id}`);
if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
const dictionary = new Uint8Array(await response.arrayBuffer());

await zstd.init();
const context = zstd.createDCtx();
const text = new TextDecoder();
let n = 0;

const socket = new WebSocket(`${server}/subscribe?cursor=0&zstdDictionary=${id}`);
socket.on("message", (message) => {
  if (n++ >= count) return; // what was on its way when there were enough
  console.log(text.decode(zstd.decompressUsingDict(context, message, dictionary)));
  if (n === count) socket.terminate();
});
socket.on("error", (error) => {
  console.error(error.message);
  process.exitCode = 1;
});

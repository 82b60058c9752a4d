// The contestants that live in Node: one long-lived process, so that what is measured is compiled and warm.
//
// node frames.mjs DIRECTORY PACKAGE: DIRECTORY holds the npm packages, PACKAGE is the release of `ai` to take.
// stdin: one JSON request per line, {way, id, least, deltas}: the deltas are taken again until that took `least`
// nanoseconds; without `deltas`, those of the request before. stdout: one JSON line per request, {nanoseconds, frame}:
// the processor time for one delta, and the frame of the last.

import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [directory, name] = process.argv.slice(2);
const resolved = createRequire(join(directory, "package.json")).resolve(name);
const { JsonToSseTransformStream } = await import(pathToFileURL(resolved));
const encoder = new TextEncoder();

const ways = {
  // One chunk in, one frame out: the transform alone, cheaper than the two pipes that the SDK puts around it.
  async transform(id, deltas) {
    const stream = new JsonToSseTransformStream();
    const writer = stream.writable.getWriter();
    const reader = stream.readable.getReader();
    let frame;
    for (const delta of deltas) {
      writer.write({ type: "text-delta", id, delta });
      frame = encoder.encode((await reader.read()).value);
    }
    const closed = writer.close();
    await reader.read(); // [DONE]
    await closed;
    return frame;
  },

  stringify(id, deltas) {
    let frame;
    for (const delta of deltas) {
      frame = encoder.encode(`data: ${JSON.stringify({ type: "text-delta", id, delta })}\n\n`);
    }
    return frame;
  },
};

let latest = [];
for await (const line of createInterface({ input: process.stdin })) {
  const { way, id, least, deltas = latest } = JSON.parse(line);
  latest = deltas;
  const begin = process.cpuUsage();
  let passes = 0;
  let taken = 0;
  let frame;
  while (passes === 0 || taken < least) {
    frame = await ways[way](id, deltas);
    passes += 1;
    const { user, system } = process.cpuUsage(begin);
    taken = (user + system) * 1000;
  }
  const nanoseconds = taken / (passes * deltas.length);
  console.log(JSON.stringify({ nanoseconds, frame: new TextDecoder().decode(frame) }));
}

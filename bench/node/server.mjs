// The contestant that lives in Node: `ai`'s createUIMessageStream, piped into a plain http response.
//
// node server.mjs DIRECTORY PACKAGE PER_SECOND COUNT: DIRECTORY holds the npm packages, PACKAGE is the release of
// `ai` to take. `/paced` answers with so many deltas PER_SECOND until the client goes, `/flood` with COUNT at once.
// stdout: the port.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [directory, name, perSecond, count] = process.argv.slice(2);
const resolved = createRequire(join(directory, "package.json")).resolve(name);
const { createUIMessageStream, pipeUIMessageStreamToResponse } = await import(pathToFileURL(resolved));
const interval = 1e9 / Number(perSecond);
const id = "text-1";

// The times of process.hrtime are Python's monotonic_ns.
const now = () => Number(process.hrtime.bigint());

async function paced(writer, isGone) {
  const begin = now();
  for (let number = 0; !isGone(); number += 1) {
    const due = Math.round(begin + number * interval);
    const early = due - now();
    if (early > 0) await new Promise((resolve) => setTimeout(resolve, early / 1e6));
    writer.write({ type: "text-delta", id, delta: `@${String(due).padStart(16, "0")}` });
  }
}

function flood(writer) {
  for (let number = 0; number < Number(count); number += 1) {
    writer.write({ type: "text-delta", id, delta: "@kettle" });
  }
}

const server = createServer((request, response) => {
  request.resume();
  let gone = false;
  response.on("close", () => (gone = true));
  const stream = createUIMessageStream({
    async execute({ writer }) {
      writer.write({ type: "text-start", id });
      if (request.url === "/paced") await paced(writer, () => gone);
      else flood(writer);
      writer.write({ type: "text-end", id });
    },
  });
  pipeUIMessageStreamToResponse({ response, stream });
});
server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => console.log(server.address().port));

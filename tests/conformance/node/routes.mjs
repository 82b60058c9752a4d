// Route handlers as people write them with the AI SDK's own server: POST /{release}/api/chat, and GET …/{id}/stream to
// resume. The model follows a script: what the user says names what it does. Prints its port when it listens.

import { createServer } from "node:http";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;
const RELEASES = process.argv.slice(2);

const USAGE = {
  v2: { inputTokens: 1, outputTokens: 1, totalTokens: 2 },
  v3: { inputTokens: { total: 1 }, outputTokens: { total: 1 } },
};

/** How many words are said, one every 50 ms. */
const SLOW = { slow: 600, slowly: 20 };

function* script(prompt) {
  const last = prompt.at(-1);
  const text = prompt.findLast((message) => message.role === "user").content.find((part) => part.type === "text").text;
  if (last.role === "tool") {
    const output = last.content.find((part) => part.type === "tool-result")?.output ?? { type: "execution-denied" };
    yield* words("1", ["I got ", output.type === "execution-denied" ? "a no" : JSON.stringify(output.value), "."]);
  } else if (["weather", "remove", "location"].includes(text)) {
    yield { type: "tool-call", toolCallId: `call-${prompt.length}`, toolName: text, input: JSON.stringify({ name: "Paris" }) };
  } else {
    yield { type: "reasoning-start", id: "r" };
    yield { type: "reasoning-delta", id: "r", delta: "Hm." };
    yield { type: "reasoning-end", id: "r" };
    yield* words("1", text in SLOW ? Array.from({ length: SLOW[text] }, (_, number) => `word${number} `) : ["You said ", text]);
  }
}

function* words(id, deltas) {
  yield { type: "text-start", id };
  for (const delta of deltas) yield { type: "text-delta", id, delta };
  yield { type: "text-end", id };
}

function modelOf(version) {
  const reason = (name) => (version === "v2" ? name : { unified: name, raw: name });
  return {
    specificationVersion: version,
    provider: "scripted",
    modelId: "script",
    supportedUrls: {},
    async doStream({ prompt, abortSignal }) {
      const text = JSON.stringify(prompt.at(-1).content);
      if (text.includes('"fail"')) throw new Error("the secret is swordfish");
      const parts = [...script(prompt)];
      const called = parts.some((part) => part.type === "tool-call");
      const usage = version === "v2" ? USAGE.v2 : USAGE.v3;
      const all = [{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason: reason(called ? "tool-calls" : "stop"), usage }];
      const stream = new ReadableStream({
        async pull(controller) {
          if (abortSignal?.aborted) return controller.error(abortSignal.reason);
          if (text.includes('"slow')) await new Promise((resolve) => setTimeout(resolve, 50));
          if (all.length === 0) controller.close();
          else controller.enqueue(all.shift());
        },
      });
      return { stream };
    },
  };
}

async function handlerOf(release) {
  const { streamText, convertToModelMessages, tool, stepCountIs, isStepCount } = await import(`ai-${release}`);
  const major = release[0];
  const inputSchema = z.object({ name: z.string() });
  const tools = {
    weather: tool({ inputSchema, execute: async () => ({ celsius: 21 }) }),
    remove: tool({ inputSchema, needsApproval: true, execute: async () => "removed" }),
    location: tool({ inputSchema }),
  };
  if (major === "5") delete tools.remove;
  const active = new Map();

  async function answer(request, body) {
    const stopped = new AbortController();
    request.on("close", () => body.resumable || stopped.abort());
    const result = streamText({
      model: modelOf(major === "5" ? "v2" : "v3"),
      messages: await convertToModelMessages(body.messages),
      tools,
      maxRetries: 0,
      stopWhen: (stepCountIs ?? isStepCount)(4),
      abortSignal: stopped.signal,
      onError: () => {},
    });
    return result.toUIMessageStreamResponse({
      originalMessages: body.messages,
      sendReasoning: true,
      async consumeSseStream({ stream }) {
        const kept = { pieces: [], readers: new Set() };
        active.set(body.id, kept);
        for await (const piece of stream) {
          kept.pieces.push(piece);
          for (const read of kept.readers) read(piece);
        }
        active.delete(body.id);
        for (const read of kept.readers) read(null);
      },
    });
  }

  function resume(id) {
    const kept = active.get(id);
    if (kept == null) return new Response(null, { status: 204 });
    const stream = new ReadableStream({
      start(controller) {
        for (const piece of kept.pieces) controller.enqueue(piece);
        kept.readers.add((piece) => (piece === null ? controller.close() : controller.enqueue(piece)));
      },
    });
    return new Response(stream.pipeThrough(new TextEncoderStream()), { headers: { "content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1" } });
  }
  return { answer, resume };
}

const handlers = new Map();
for (const release of RELEASES) handlers.set(release, await handlerOf(release));

const server = createServer(async (request, response) => {
  try {
    const [, release, , , id] = request.url.split("/");
    const handler = handlers.get(release);
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const isPost = request.method === "POST" && id === undefined;
    if (!isPost && request.method !== "GET") return response.writeHead(404).end();
    const answer = isPost ? await handler.answer(response, JSON.parse(Buffer.concat(pieces))) : handler.resume(decodeURIComponent(id));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) for await (const piece of answer.body) response.write(piece);
    response.end();
  } catch (error) {
    console.error(error);
    response.destroy();
  }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));

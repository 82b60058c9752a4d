// A Genkit server whose model follows a script, with the real packages `genkit` and `@genkit-ai/express`; all offline.
//
// stdout: one JSON line with the port. The last message names what the model does, as in tests/genkit/scripted.py.
// GET /heard tells which tools started, what was deleted, which paths were left, and which headers came. The message "gated" waits before
// each part, and in its tool, until POST /go lets it take one step.

import { expressHandler } from "@genkit-ai/express";
import express from "express";
import { genkit, InMemorySessionStore, InMemoryStreamManager, z } from "genkit/beta";
import { logger } from "genkit/logging";

logger.setLogLevel("error");
console.error = () => {}; // failing is part of the script

const heard = { started: [], deleted: [], left: [], headers: [] };
const ai = genkit({ model: "scripted" });
const request = (name, city, extra = {}) => ({ toolRequest: { name, input: { city }, ...extra } });

let permits = 0;
const waiting = [];
const gate = () => (permits > 0 ? void permits-- : new Promise((resolve) => waiting.push(resolve)));
const open = () => (waiting.length > 0 ? waiting.shift()() : permits++);

const scripts = {
  gated: [
    [
      { text: "Let me look." },
      request("gated", "R", { partial: true }),
      request("gated", "Ro", { partial: true }),
      request("gated", "Rome"),
    ],
    [{ text: "It is warm." }],
  ],
  hello: [[{ text: "Hel" }, { text: "lo" }]],
  think: [[{ reasoning: "I wonder" }, { reasoning: ".", metadata: { signature: "c2ln" } }, { text: "Yes." }]],
  weather: [[{ text: "Let me look." }, request("weather", "Rome"), request("weather", "Paris")], [{ text: "It is warm." }]],
  broken: [[{ text: "Let me look." }, request("broken", "Rome")]],
  delete: [[{ text: "May I?" }, request("delete", "Rome"), request("weather", "Oslo")], [{ text: "Thanks." }]],
  twins: [[{ text: "May I?" }, request("delete", "Rome"), request("delete", "Paris")], [{ text: "OUTPUTS" }]],
  beside: [
    [{ text: "May I?" }, request("delete", "Rome"), request("nothing", "Oslo"), request("never", "Oslo")],
    [{ text: "Thanks." }],
  ],
  relapse: [[{ text: "May I?" }, request("relapse", "Rome")], [{ text: "Thanks." }]],
  confirm: [[{ text: "May I?" }, request("confirm", "Rome")], [{ text: "Thanks." }]],
  wait: [[{ text: "Let me look." }, request("wait", "Rome")]],
  picture: [[{ media: { url: "data:image/png;base64,AAAA" } }, { data: { answer: 42 } }]],
};

ai.defineModel({ name: "scripted", supports: { tools: true, multiturn: true, media: true } }, async (asked, send) => {
  const said = asked.messages.filter(({ role }) => role === "user" || role === "tool");
  const last = said.findLastIndex(({ role }) => role === "user");
  const text = said[last].content.map((part) => part.text ?? "").join("");
  const outputs = said.at(-1).content.map((part) => part.toolResponse?.output);
  const content = scripts[text][said.length - 1 - last].map((part) =>
    part.text === "OUTPUTS" ? { text: JSON.stringify(outputs.sort()) } : part,
  );
  for (const part of content) {
    if (text === "gated") await gate();
    send?.({ content: [part] });
    await new Promise(setImmediate);
  }
  const whole = content.filter((part) => !part.toolRequest?.partial);
  const usage = { inputTokens: 3, outputTokens: 5, totalTokens: 8 };
  return { message: { role: "model", content: whole }, finishReason: "stop", usage };
});

const City = z.object({ city: z.string() });
const tool = (name, run) => ai.defineTool({ name, description: name, inputSchema: City, outputSchema: z.any() }, run);
const tools = [
  tool("weather", async ({ city }) => ({ city, celsius: city.length })),
  tool("gated", async ({ city }) => {
    await gate();
    return { city };
  }),
  tool("broken", async () => {
    throw new Error("a secret of the server");
  }),
  tool("delete", async ({ city }, { resumed, interrupt }) => {
    if (!resumed) interrupt({ reason: "This cannot be undone." });
    heard.deleted.push([city, resumed.approved]);
    return resumed.approved ? `${city} is gone` : `${city} is still there`;
  }),
  tool("nothing", async () => undefined),
  tool("never", async () => false),
  tool("relapse", async ({ city }, { resumed, interrupt }) => {
    if (resumed) heard.deleted.push([city, resumed.approved]);
    interrupt();
  }),
  ai.defineInterrupt({
    name: "confirm",
    description: "confirm",
    inputSchema: City,
    outputSchema: z.object({ confirmed: z.boolean() }),
  }),
  tool("wait", () => {
    heard.started.push("wait");
    return new Promise(() => {});
  }),
];

async function generate(options, { sendChunk, abortSignal }) {
  const { stream, response } = ai.generateStream({ ...options, tools, abortSignal });
  for await (const chunk of stream) sendChunk(chunk.toJSON());
  const { request: _request, ...rest } = (await response).toJSON();
  return rest;
}

const Question = z.object({
  message: z.string(),
  conversationHistory: z.array(z.object({ role: z.enum(["user", "model"]), content: z.string() })),
});
const flow = (name, inputSchema, run) => ai.defineFlow({ name, inputSchema }, run);
const flows = [
  flow("chatFlow", Question, ({ message }, context) => generate({ prompt: message }, context)),
  flow("conversation", z.object({ messages: z.array(z.any()), resume: z.any() }), generate),
  flow("echo", z.string(), async (text) => `You said: ${text}`),
  flow("words", z.string(), async (text, { sendChunk }) => {
    for (const word of ["You ", "said: ", text]) sendChunk(word);
    return `You said: ${text}`;
  }),
  flow("statuses", z.string(), async (text, { sendChunk }) => {
    sendChunk({ status: "looking" });
    return { text: `You said: ${text}` };
  }),
  flow("ask", z.object({ question: z.string() }).strict(), async ({ question }) => `You asked: ${question}`),
  flow("nothing", z.string(), async () => undefined),
  flow("refusing", z.string(), async (_text, { sendChunk }) => {
    sendChunk("Well, ");
    throw new Error("a secret of the server");
  }),
];
const durable = flow("durable", z.string(), async (text, { sendChunk }) => {
  for (const word of ["You ", "said: ", text]) {
    sendChunk(word);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return `You said: ${text}`;
});
const agent = ai.defineAgent({ name: "helper", system: "Be kind.", tools, store: new InMemorySessionStore() });
const stateless = ai.defineAgent({ name: "stateless", system: "Be kind.", tools });

const app = express();
app.use(express.json());
app.use((request, response, next) => {
  heard.headers.push({ path: request.path, ...request.headers });
  response.on("close", () => {
    if (!response.writableEnded) heard.left.push(request.path);
  });
  next();
});
app.post("/go", (_request, response) => {
  open();
  response.end();
});
app.get("/heard", (_request, response) => void response.json(heard));
for (const one of flows) app.post(`/${one.__action.name}`, expressHandler(one));
for (const one of [agent, stateless]) app.post(`/${one.__action.name}`, expressHandler(one));

// A connection that is not attached again is cut behind its first word.
app.post(
  "/durable",
  (request, response, next) => {
    const write = response.write.bind(response);
    response.write = (...frame) => {
      if (!request.headers["x-genkit-stream-id"]) setTimeout(() => response.destroy(), 20);
      return write(...frame);
    };
    next();
  },
  expressHandler(durable, { streamManager: new InMemoryStreamManager() }),
);

const server = app.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: server.address().port })));

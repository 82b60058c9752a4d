// The judge: one long-lived process that runs the real AI SDK packages on our cases.
//
// stdin: one JSON request per line, {number, op, release, cases}; stdout: one JSON line per request, in order, with the
// number of the request: {number, results: [...]} with one entry per case, or {number, failure: text} when the request
// itself made no sense.
// Nothing of the SDK is reimplemented here: every verdict comes out of a published package.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

// stdout is the protocol, so whatever the packages want to say goes to stderr.
for (const method of ["log", "info", "debug", "warn"]) console[method] = console.error;
globalThis.AI_SDK_LOG_WARNINGS = false;
process.on("unhandledRejection", (reason) => console.error("unhandled rejection:", reason));
process.on("uncaughtException", (error) => console.error("uncaught exception:", error));

const manifest = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));

const loaded = new Map();
function load(release) {
  if (!(`ai-${release}` in dependencies)) throw new Error(`no such release: ${release}`);
  if (!loaded.has(release)) loaded.set(release, import(`ai-${release}`));
  return loaded.get(release);
}

const described = (error) => (error == null ? null : { name: error.name ?? typeof error, message: error.message ?? String(error) });

// ---- chat: the whole client, from the response's bytes to the chat's messages ----

const defaultHistory = [{ id: "user-1", role: "user", parts: [{ type: "text", text: "hi" }] }];

// As ReactChatState of @ai-sdk/react does it: a pushed message is kept as it is, a replaced one is copied. It matters:
// what the client does to its message after its last write (a trailing `start-step`) may never be seen by the page.
class ChatState {
  status = "ready";
  error = undefined;
  live = undefined; // the client's own working message, as opposed to the copies the page sees
  constructor(messages) {
    this.messages = messages;
  }
  snapshot = structuredClone;
  pushMessage = (message) => {
    this.live = message;
    this.messages = this.messages.concat(message);
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.live = message;
    this.messages = this.messages.with(index, structuredClone(message));
  };
}

function responseOf({ body, status = 200, splits = [], breaks = false }) {
  const bytes = Buffer.from(body, "base64");
  const bodyless = status === 204 || status === 205 || status === 304; // a Response with these may not have a body
  if (bodyless) return new Response(null, { status });
  if (splits.length === 0 && !breaks) return new Response(bytes, { status });
  const cuts = [0, ...splits, bytes.length];
  const pieces = cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end));
  return new Response(ReadableStream.from(breaks ? broken(pieces) : pieces), { status });
}

async function* broken(pieces) {
  yield* pieces;
  await new Promise((resolve) => setTimeout(resolve, 5)); // a failure overtakes what still waits in a stream
  throw new TypeError("network error"); // as Chrome words it
}

// `messages` is the history as the request carries it; what the page did to send it follows from how it ends.
function send(chat, { messages, trigger, messageId }) {
  if (trigger === "regenerate-message") return chat.regenerate({ messageId });
  if (trigger === "resume-stream") return chat.resumeStream();
  const last = messages.at(-1);
  const addressed = messageId == null ? last : messages.find((message) => message.id === messageId);
  if (addressed?.role === "assistant") return chat.sendMessage(undefined, messageId == null ? {} : { messageId });
  if (messageId != null) return chat.sendMessage({ ...last, messageId });
  chat.messages = messages.slice(0, -1);
  return chat.sendMessage(last);
}

async function chat(ai, { messages = defaultHistory, ...options }) {
  const state = new ChatState(messages);
  const data = [];
  const toolCalls = [];
  let ids = 0;
  let finish = null;
  let thrown = null;
  class Chat extends ai.AbstractChat {}
  const client = new Chat({
    id: "chat-1",
    state,
    generateId: () => `client-${++ids}`,
    transport: new ai.DefaultChatTransport({ fetch: async () => responseOf(options) }),
    onData: (part) => void data.push(structuredClone(part)),
    onToolCall: ({ toolCall }) => void toolCalls.push(structuredClone(toolCall)),
    onFinish: ({ message, messages: _, ...flags }) => {
      state.live ??= message;
      finish = flags;
    },
  });
  try {
    await send(client, { messages, ...options });
  } catch (error) {
    thrown = error; // argument errors only; what goes wrong in a turn is in client.error
  }
  const last = client.messages.at(-1);
  return {
    status: client.status,
    error: described(client.error ?? thrown),
    messages: client.messages,
    message: last?.role === "assistant" ? last : null,
    live: state.live ?? null,
    data,
    toolCalls,
    finish,
  };
}

// ---- the other operations ----

async function read(ai, { chunks, message }) {
  const errors = [];
  let latest = message ?? null;
  const snapshots = ai.readUIMessageStream({
    message: structuredClone(message),
    stream: ReadableStream.from(chunks),
    onError: (error) => errors.push(error),
  });
  for await (const snapshot of snapshots) latest = snapshot;
  return { message: latest, error: described(errors[0]) };
}

async function validate(ai, { messages }) {
  if (!ai.safeValidateUIMessages) return { ok: null, messages: null, error: null };
  const result = await ai.safeValidateUIMessages({ messages });
  return { ok: result.success, messages: result.data ?? null, error: described(result.error) };
}

// The schema is not exported by every release, so the chunk goes through the transport's own response reader.
async function schema(ai, chunk) {
  const frame = new Blob([`data: ${JSON.stringify(chunk)}\n\n`]).stream();
  try {
    await Array.fromAsync(new ai.DefaultChatTransport().processResponseStream(frame));
    return { accepted: true, error: null };
  } catch (error) {
    return { accepted: false, error: described(error) };
  }
}

async function convert(ai, { messages }) {
  try {
    return { messages: await ai.convertToModelMessages(messages), error: null };
  } catch (error) {
    return { messages: null, error: described(error) };
  }
}

// With the options of the conversion. Functions cannot be sent, so what they do is agreed on: see the judge's caller.
async function modelMessages(ai, { messages, ignoreIncompleteToolCalls, convertsData, hasTools }) {
  const takesObject = "lastAssistantMessageIsCompleteWithApprovalResponses" in ai; // 6 and 7; 5 gives the output alone
  const tools = {
    plain: {},
    converted: { toModelOutput: (given) => ({ type: "content", value: [takesObject ? given.output : given] }) },
  };
  const convertDataPart = ({ type, data }) => {
    if (type === "data-note") return { type: "text", text: data };
    if (type === "data-file") return { type: "file", mediaType: "text/plain", data };
  };
  try {
    const options = { ignoreIncompleteToolCalls, ...(convertsData && { convertDataPart }), ...(hasTools && { tools }) };
    return { messages: await ai.convertToModelMessages(messages, options), error: null };
  } catch (error) {
    return { messages: null, error: described(error) };
  }
}

// What a language model is sent for these model messages. The model answers nothing: it fails once it has its prompt.
async function prompt(ai, { messages, specification }) {
  let received = null;
  const doGenerate = async (options) => {
    received = options.prompt;
    throw new Error("received");
  };
  const supportedUrls = { "*/*": [/.*/] };
  const model = { specificationVersion: specification, provider: "p", modelId: "m", supportedUrls, doGenerate };
  const revived = JSON.parse(JSON.stringify(messages), (_, value) =>
    value?.type === "url" && value.url ? { ...value, url: new URL(value.url) } : value,
  );
  try {
    await ai.generateText({ model, messages: revived, maxRetries: 0, allowSystemInMessages: true });
    return { prompt: null, error: null };
  } catch (error) {
    return { prompt: received, error: received ? null : described(error) };
  }
}

const href = (_ai, text) => ({ href: URL.parse(text)?.href ?? null });

const complete = (ai, options) => ({
  toolCalls: ai.lastAssistantMessageIsCompleteWithToolCalls(options),
  approvals: ai.lastAssistantMessageIsCompleteWithApprovalResponses?.(options) ?? null,
});

const operations = {
  chat,
  read,
  validate,
  schema,
  convert,
  complete,
  partial_json: (ai, text) => ai.parsePartialJson(text),
  model_messages: modelMessages,
  prompt,
  href,
};

const versions = () => ({
  node: process.versions.node,
  packages: Object.fromEntries(Object.keys(dependencies).map((name) => [name, manifest(name).version])),
});

async function judged(operation, ai, one) {
  try {
    return await operation(ai, one);
  } catch (error) {
    return { crash: described(error) };
  }
}

async function answer({ op, release, cases }) {
  try {
    if (op === "versions") return { results: [versions()] };
    const operation = operations[op];
    if (!operation) throw new Error(`no such operation: ${op}`);
    const ai = await load(release);
    const results = [];
    for (const one of cases) results.push(await judged(operation, ai, one)); // one by one is faster than all at once
    return { results };
  } catch (error) {
    return { failure: described(error).message };
  }
}

// Half a request, whose sender was interrupted, and the empty line before each request are skipped.
function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const request = parsed(line);
  if (request != null) process.stdout.write(JSON.stringify({ number: request.number, ...(await answer(request)) }) + "\n");
}

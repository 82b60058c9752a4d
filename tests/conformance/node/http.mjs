// The browser: one long-lived process whose pages talk to a URL with the real AI SDK clients and the real fetch.
//
// stdin: one JSON request per line, {op, page, ...}; stdout: one JSON line per request, in order: {result} or {failure}.
// Every operation returns at once: a call of a page goes on by itself, and `look` tells how the page stands.

import { createInterface } from "node:readline";

// stdout is the protocol, so whatever the packages want to say goes to stderr.
for (const method of ["log", "info", "debug", "warn"]) console[method] = console.error;
globalThis.AI_SDK_LOG_WARNINGS = false;
process.on("unhandledRejection", (reason) => console.error("unhandled rejection:", reason));
process.on("uncaughtException", (error) => console.error("uncaught exception:", error));

const described = (error) => (error == null ? null : { name: error.name ?? typeof error, message: error.message ?? String(error) });

// As ReactChatState of @ai-sdk/react does it: a pushed message is kept as it is, a replaced one is copied.
class ChatState {
  status = "ready";
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  snapshot = structuredClone;
  pushMessage = (message) => {
    this.messages = this.messages.concat(message);
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, structuredClone(message));
  };
}

// What the page writes down of its own traffic; the real fetch does the work.
function recordingFetch(requests) {
  return async (url, options) => {
    const request = { method: options.method ?? "GET", url, body: options.body ? JSON.parse(options.body) : null, status: null };
    requests.push(request);
    const response = await fetch(url, options);
    request.status = response.status;
    return response;
  };
}

// When a page posts again by itself, as its author wrote it: after client-side tools, after approvals.
function automatically(ai, names) {
  const conditions = {
    tools: ai.lastAssistantMessageIsCompleteWithToolCalls,
    approvals: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
  };
  return names.length === 0 ? undefined : (options) => names.some((name) => conditions[name](options));
}

const pages = new Map();

async function open({ page, release, url, chatId, messages, headers, automatic }) {
  const ai = await import(`ai-${release}`);
  const record = { requests: [], data: [], toolCalls: [], finishes: [], calls: 0, thrown: null };
  class Chat extends ai.AbstractChat {}
  record.chat = new Chat({
    id: chatId,
    state: new ChatState(messages),
    transport: new ai.DefaultChatTransport({ api: url, headers, fetch: recordingFetch(record.requests) }),
    sendAutomaticallyWhen: automatically(ai, automatic),
    onData: (part) => void record.data.push(structuredClone(part)),
    onToolCall: ({ toolCall }) => void record.toolCalls.push(structuredClone(toolCall)),
    onFinish: ({ message: _, messages: __, ...flags }) => void record.finishes.push(flags),
  });
  pages.set(page, record);
  return {};
}

function call({ page, method, options }) {
  const record = pages.get(page);
  record.calls += 1;
  Promise.resolve(record.chat[method](...options))
    .catch((error) => (record.thrown = error))
    .finally(() => (record.calls -= 1));
  return {};
}

function look({ page }) {
  const { chat, thrown, ...seen } = pages.get(page);
  return { ...seen, status: chat.status, error: described(chat.error ?? thrown), messages: chat.messages };
}

const operations = { open, call, look };

async function answer(line) {
  try {
    const request = JSON.parse(line);
    return { result: await operations[request.op](request) };
  } catch (error) {
    return { failure: described(error).message };
  }
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  process.stdout.write(JSON.stringify(await answer(line)) + "\n");
}

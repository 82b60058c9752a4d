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

// A body of which nothing is read before `mayRead`; then all that has come meanwhile.
function unread(response, mayRead) {
  const reader = response.body.getReader();
  const body = new ReadableStream(
    {
      async pull(controller) {
        await mayRead;
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, response);
}

// What the page writes down of its own traffic; the real fetch does the work.
function recordingFetch(requests, mayRead) {
  return async (url, options) => {
    const request = { method: options?.method ?? "GET", url, body: options?.body ? JSON.parse(options.body) : null, status: null };
    requests.push(request);
    const response = await fetch(url, options);
    request.status = response.status;
    return mayRead == null ? response : unread(response, mayRead);
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

// The same for a socket: every frame, both ways.
function recordingWebSocket(frames) {
  return class extends WebSocket {
    constructor(...options) {
      super(...options);
      this.addEventListener("message", ({ data }) => void frames.push(JSON.parse(data)));
    }
    send(data) {
      frames.push(JSON.parse(data));
      super.send(data);
    }
  };
}

const pages = new Map();
const sockets = new Map();

// What docs/chats.md tells pages to send where the server has the history: one message.
function oneMessage({ id, messages, trigger, messageId }) {
  const found = messages.findIndex((message) => message.id === messageId), at = found < 0 ? messages.length - 1 : found;
  return { body: { id, trigger, messageId, message: messages[at], parentId: messages[at - 1]?.id ?? null } };
}

// The transports that go on by themselves after a cut; such a page puts its id into the body, and keeps the last run.
const workflows = { 6: "@workflow/ai", 7: "@ai-sdk/workflow/client" };

async function workflowOf(release, { url, chatId, startIndex }, requests, mayRead) {
  const { WorkflowChatTransport } = await import(workflows[release[0]]);
  return new WorkflowChatTransport({
    api: url,
    fetch: recordingFetch(requests, mayRead),
    initialStartIndex: startIndex,
    prepareSendMessagesRequest: ({ messages }) => ({ body: { id: chatId, messages } }),
  });
}

// Chats that name the same socket share one transport, as the chats of one page do.
function transportOf(ai, { url, headers, socket, sends }, requests, mayRead) {
  const prepare = sends === "one" ? { prepareSendMessagesRequest: oneMessage } : {};
  if (socket == null)
    return new ai.DefaultChatTransport({ api: url, headers, fetch: recordingFetch(requests, mayRead), ...prepare });
  if (!sockets.has(socket)) {
    const frames = [];
    const transport = new ai.WebSocketChatTransport({ url, headers, webSocket: recordingWebSocket(frames) });
    sockets.set(socket, { frames, transport });
  }
  return sockets.get(socket).transport;
}

async function open({ page, release, chatId, messages, automatic, reads, ...options }) {
  const ai = await import(`ai-${release}`);
  let read = null;
  const mayRead = reads ? null : new Promise((resolve) => (read = resolve));
  const record = { requests: [], data: [], toolCalls: [], finishes: [], calls: 0, thrown: null, read };
  class Chat extends ai.AbstractChat {}
  record.chat = new Chat({
    id: chatId,
    state: new ChatState(messages),
    transport: options.workflow
      ? await workflowOf(release, { chatId, ...options }, record.requests, mayRead)
      : transportOf(ai, options, record.requests, mayRead),
    sendAutomaticallyWhen: automatically(ai, automatic),
    experimental_queue: options.queues,
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
  const { chat, thrown, read, ...seen } = pages.get(page);
  return { ...seen, status: chat.status, error: described(chat.error ?? thrown), messages: chat.messages, queued: chat.experimental_queuedMessages ?? [] };
}

function read({ page }) {
  pages.get(page).read();
  return {};
}

const frames = ({ socket }) => sockets.get(socket).frames;

function disconnect({ socket }) {
  sockets.get(socket).transport.close();
  return {};
}

const operations = { open, call, look, read, frames, disconnect };

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

// Whole conversations of the real chat class against a URL: the other half of tests/conformance/test_client.py.
//
// stdin: one JSON line per request, {release, conversations}; stdout: one JSON line per request, {results} or {failure}.
// A conversation is {url, gate, chatId, automatic, actions}. Its result holds the state after each action and every request.

import { createInterface } from "node:readline";

// stdout is the protocol, so whatever the packages want to say goes to stderr.
for (const method of ["log", "info", "debug", "warn"]) console[method] = console.error;
globalThis.AI_SDK_LOG_WARNINGS = false;
process.on("unhandledRejection", (reason) => console.error("unhandled rejection:", reason));
process.on("uncaughtException", (error) => console.error("uncaught exception:", error));

const AT_ONCE = 12;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// As ReactChatState of @ai-sdk/react does it: a pushed message is kept as it is, a replaced one is copied.
class ChatState {
  status = "ready";
  error = undefined;
  messages = [];
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

function recordingFetch(requests) {
  return async (url, options) => {
    const request = { method: options.method ?? "GET", body: options.body ? JSON.parse(options.body) : null, status: null };
    requests.push(request);
    const response = await fetch(url, options);
    request.status = response.status;
    return response;
  };
}

function automatically(ai, names) {
  const conditions = {
    tools: ai.lastAssistantMessageIsCompleteWithToolCalls,
    approvals: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
  };
  return names.length === 0 ? undefined : (options) => names.some((name) => conditions[name](options));
}

const textOf = (message) =>
  message?.role === "assistant" ? message.parts.map((part) => (part.type === "text" ? part.text : "")).join("") : "";
const tools = (chat) => chat.messages.flatMap((message) => message.parts.filter((part) => "toolCallId" in part));
const busy = (chat) => chat.status === "submitted" || chat.status === "streaming";

async function until(condition) {
  for (let left = 5_000; !condition(); left -= 1) {
    if (left === 0) throw new Error("never happened: " + condition);
    await pause(1);
  }
}

// Tool outputs and approvals send by themselves without being awaited.
async function settled(chat) {
  await pause(2);
  await until(() => !busy(chat));
}

const idOf = (chat, index) => chat.messages[index % chat.messages.length]?.id;

const actions = {
  send: (chat, { text }) => chat.sendMessage({ text }),
  file: (chat, { text, files, metadata }) => chat.sendMessage({ text, files, metadata }),
  edit: (chat, { text, index }) => chat.sendMessage({ text, messageId: idOf(chat, index) }),
  unknown: (chat) => chat.sendMessage({ text: "text", messageId: "nobody" }),
  again: (chat) => chat.sendMessage(),
  regenerate: (chat) => chat.regenerate(),
  regenerateOne: (chat, { index }) => chat.regenerate({ messageId: idOf(chat, index) }),
  clear: (chat) => chat.clearError(),
  resume: (chat) => chat.resumeStream(),
  async stop(chat, { text }, { url }) {
    const sent = chat.sendMessage({ text });
    await pause(0); // until it is submitted
    await until(() => textOf(chat.lastMessage).endsWith("held ") || !busy(chat));
    await chat.stop();
    await sent;
    // The server notices a moment later that nobody reads.
    while ((await (await fetch(`${url}/${chat.id}`)).json()).state === "running") await pause(1);
  },
  // The run goes on without a reader, so that the next message is a conflict.
  async abandon(chat, { text }, { url, gate }) {
    const sent = chat.sendMessage({ text });
    await pause(0);
    await until(() => textOf(chat.lastMessage).endsWith("held ") || !busy(chat));
    if (!busy(chat)) return sent;
    await chat.stop();
    await sent;
    await chat.sendMessage({ text: "text" });
    await fetch(gate, { method: "POST" });
    while ((await (await fetch(`${url}/${chat.id}`)).json()).state === "running") await pause(1);
  },
  async leave(chat, { text }, { gate, requests }) {
    const sent = chat.sendMessage({ text });
    await pause(0); // until it is submitted
    await until(() => textOf(chat.lastMessage).endsWith("held ") || !busy(chat));
    if (!busy(chat)) return sent;
    await chat.stop();
    const resumed = chat.resumeStream();
    await until(() => requests.at(-1).method === "GET" && requests.at(-1).status !== null);
    await fetch(gate, { method: "POST" });
    await Promise.all([sent, resumed]);
  },
  async output(chat, { errorText }) {
    for (const part of tools(chat).filter((part) => part.state === "input-available"))
      await chat.addToolOutput(
        errorText == null
          ? { tool: "location", toolCallId: part.toolCallId, output: { city: "Paris" } }
          : { tool: "location", toolCallId: part.toolCallId, state: "output-error", errorText },
      );
    await settled(chat);
  },
  async approve(chat, { approved, reason }) {
    for (const part of tools(chat).filter((part) => part.state === "approval-requested"))
      await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason });
    await settled(chat);
  },
};

async function talk(ai, { url, gate, chatId, automatic, early, actions: wanted }) {
  const requests = [];
  const states = [];
  class Chat extends ai.AbstractChat {}
  const chat = new Chat({
    id: chatId,
    state: new ChatState(),
    transport: new ai.DefaultChatTransport({ api: url, fetch: recordingFetch(requests) }),
    sendAutomaticallyWhen: automatically(ai, automatic),
    // A tool that returns while the answer is still being streamed.
    onToolCall: ({ toolCall }) => {
      if (early && toolCall.toolName === "location")
        void chat.addToolOutput({ tool: "location", toolCallId: toolCall.toolCallId, output: "early" });
    },
  });
  for (const action of wanted) {
    let thrown = null;
    try {
      await actions[action.do](chat, action, { url, gate, requests });
    } catch (error) {
      thrown = error.message;
    }
    await settled(chat);
    states.push(structuredClone({ status: chat.status, error: chat.error?.message ?? null, thrown, messages: chat.messages }));
  }
  return { states, requests };
}

async function inParallel(items, work) {
  const results = new Array(items.length);
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

async function answer(line) {
  try {
    const { release, conversations } = JSON.parse(line);
    const ai = await import(`ai-${release}`);
    return { results: await inParallel(conversations, (conversation) => talk(ai, conversation)) };
  } catch (error) {
    return { failure: error.stack ?? String(error) };
  }
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  process.stdout.write(JSON.stringify(await answer(line)) + "\n");
}

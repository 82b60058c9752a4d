"""Requests of MCP Apps to agent processes, which have the sessions with the MCP servers.

A web process decides which server an app may ask, posts the request to the mailbox of a process that takes turns, and
waits. That process asks the server of its agent, by the same rules as a server that has the agent, and posts the answer
back. Nothing is stored: a request to a process that dies is answered with an error, and an app asks again.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from usechat.encoded_turns import decode_json, encode_json
from usechat.errors import AppRequestFailed, InvalidRequest, RequestError, StoreUnreachable, Unprocessable
from usechat.ids import new_id
from usechat.pauses.states import Mailbox
from usechat.protocol.values import json_value
from usechat.runs.turns import AgentMailboxes
from usechat.server.apps import SECONDS, AppCall, ask_server, server_named, unreachable
from usechat.sources import OpenSession
from usechat.turn import Identity

__all__ = ["AnsweredApps", "RemoteApps"]

_logger: Final = logging.getLogger("usechat.server")
_PATIENCE: Final = SECONDS + 10.0
"""How long an answer may take: the other process has ended the request before."""
_REFUSALS: Final = {error.status: error for error in (InvalidRequest, Unprocessable, AppRequestFailed)}


class RemoteApps:
    """The web process's side: asks the agent processes of a queue."""

    def __init__(self, queue: AgentMailboxes, mailbox: Mailbox) -> None:
        self._queue = queue
        self._mailbox = mailbox
        self._address = f"apps {new_id()}"
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

    async def ask(self, call: AppCall, server: str | None, identity: Identity) -> bytes:
        """Return an agent process's answer to a request; raise what it refused the request with."""
        worker = await self._queue.agent_process()
        if worker is None:
            raise AppRequestFailed("No agent process is running that could reach the MCP server of this app.")
        self._mailbox.receive(self._address, self._take)
        request_id, answer = new_id(), asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        fields = {
            "id": request_id,
            "worker": self._mailbox.worker,
            "address": self._address,
            "call": msgspec.to_builtins(call),
            "server": server,
            "identity": json_value(msgspec.to_builtins(identity)),
        }
        try:
            await self._mailbox.post(worker, self._queue.address, encode_json(fields))
            async with asyncio.timeout(_PATIENCE):
                return _content(await answer)
        except TimeoutError:
            raise AppRequestFailed("The agent process did not answer.") from None
        finally:
            del self._waiting[request_id]

    def _take(self, message: bytes) -> None:
        answer = decode_json(message)
        waiting = self._waiting.get(answer["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


def _content(answer: Mapping[str, Any]) -> bytes:
    if (error := _REFUSALS.get(answer.get("status", 0))) is not None:
        raise error(answer["text"])
    content: str = answer["content"]
    return content.encode()


class AnsweredApps:
    """The agent process's side: answers what web processes ask of the agent's servers."""

    def __init__(self, queue: AgentMailboxes, mailbox: Mailbox, servers: Mapping[str, OpenSession]) -> None:
        self._mailbox = mailbox
        self._servers = servers
        self._answering: set[asyncio.Task[None]] = set()
        mailbox.receive(queue.address, self._take)

    async def close(self) -> None:
        """Answer nothing more."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _take(self, message: bytes) -> None:
        task = asyncio.create_task(self._answer(message), name="usechat app request")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, message: bytes) -> None:
        try:
            fields = decode_json(message)
            answer = {"id": fields["id"], **await self._outcome(fields)}
            await self._mailbox.post(fields["worker"], fields["address"], encode_json(answer))
        except StoreUnreachable:
            pass  # the store logs it
        except Exception:
            _logger.exception("a request of an app could not be read; use one release of usechat for all processes")

    async def _outcome(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        call, identity = msgspec.convert(fields["call"], AppCall), msgspec.convert(fields["identity"], Identity)
        try:
            server = server_named(self._servers, fields["server"])
            if server is None:
                raise unreachable(fields["server"], "give the agent of this process a server of this name")
            return {"content": (await ask_server(call, server, identity)).decode()}
        except RequestError as error:
            return {"status": error.status, "text": str(error)}

"""What a short turn costs: processor time of the server per turn of two deltas, beside a route that is written by hand.

One connection asks for one turn after the other, and the servers take turns. A chat has 20 turns, of which the first
makes it. Everyone is served as `usechat serve` serves: with uvicorn's access log, and on a core of its own. What
PostgreSQL takes of the machine is not counted: its server is another one.

`python -m bench.server.turns NAME PORT` serves one of those that are no command of their own.
"""

import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.rounds import say
from bench.server import by_hand
from bench.server.process import Server, free_port, serving_at
from tests.postgres_server import postgres_server

BY_HAND: Final = "a FastAPI route written by hand, no features"
CHAT_APP: Final = "usechat: ChatApp"
SERVE: Final = "usechat serve, chats in memory"
SQLITE: Final = "usechat serve, chats in SQLite"
POSTGRES: Final = "usechat serve, chats in PostgreSQL"
TURNS_OF_CHAT: Final = 20
_TEXTS: Final = ("Hello ", "world.")
END: Final = b"0\r\n\r\n"
"""The last chunk of a body (RFC 9112, 7.1)."""


async def agent(_turn: object) -> AsyncGenerator[str, None]:
    """Say two words."""
    for text in _TEXTS:
        yield text


def measure_turns(*, turns: int = 300, rounds: int = 7) -> dict[str, float]:
    """Return the milliseconds that a turn costs, by server: the best round, because other load only adds to it."""
    best: dict[str, float] = {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(_serving(name)) for name in (BY_HAND, CHAT_APP, SERVE, SQLITE, POSTGRES)}
        for number in range(rounds + 1):  # the first one warms up
            for name, server in servers.items():
                cost = _cost(server, range(number * turns, (number + 1) * turns))
                best[name] = min(cost, best.get(name, cost)) if number else cost
    for name, cost in best.items():
        say(f"{name}: {cost:.2f} ms of CPU a turn")
    return best


def _cost(server: Server, turns: range) -> float:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        before = server.processor_nanoseconds()
        for turn in turns:
            ask(connection, turn)
        return (server.processor_nanoseconds() - before) / 1e6 / len(turns)


def ask(connection: socket.socket, turn: int, turns_of_chat: int = TURNS_OF_CHAT) -> bytes:
    """Ask for one turn; return the response."""
    connection.sendall(post(f"chat-{turn // turns_of_chat}", f"user-{turn}"))
    response = b""
    while not response.endswith(END):
        piece = connection.recv(65536)
        if not piece:
            raise RuntimeError(f"the server closed the connection: {response[:200]!r}")
        response += piece
    return response


def post(chat_id: str, message_id: str) -> bytes:
    """Return the request with a new message in a chat."""
    message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": "Why?"}]}
    body = json.dumps({"id": chat_id, "trigger": "submit-message", "messages": [message]}).encode()
    head = "POST /api/chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def _serving(name: str) -> Iterator[Server]:
    port = free_port()
    with command_of(name, port) as command, serving_at(port, command) as server:
        yield server


@contextmanager
def command_of(name: str, port: int) -> Iterator[list[str]]:
    """Prepare what a server needs, until the block ends; its command."""
    serve = [usechat(), "serve", "bench.server.turns:agent", "--port", str(port)]
    if name == SERVE:
        yield serve
    elif name == SQLITE:
        with TemporaryDirectory() as directory:
            yield [*serve, "--chats", str(Path(directory, "chats.db"))]
    elif name == POSTGRES:
        with postgres_chats() as url:
            yield [*serve, "--chats", url]
    else:
        yield [sys.executable, "-m", "bench.server.turns", name, str(port)]


@contextmanager
def postgres_chats() -> Iterator[str]:
    """Run a PostgreSQL server with the tables of chats; the URL for `--chats`."""
    with postgres_server() as url:
        chats = url.replace("postgresql://", "postgresql+asyncpg://")
        subprocess.run([usechat(), "chats", "migrate", "--chats", chats], check=True, stdout=subprocess.DEVNULL)
        yield chats


def usechat() -> str:
    """Return the path of the command."""
    return str(Path(sys.executable).with_name("usechat"))


def main(name: str, port: int) -> None:
    import uvicorn

    from usechat.server import ChatApp

    uvicorn.run(by_hand.app(agent) if name == BY_HAND else ChatApp(agent), port=port)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

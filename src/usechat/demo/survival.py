"""The server of the demo dies and lives: its parent starts it anew, and chats are in a file.

The child serves as `usechat serve` would. Only a child that was killed is started again; any other end is that of the
command. Where a process can be forked, the parent has imported what the child needs: it is back within a second.
"""

import asyncio
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from usechat.cli import main
from usechat.errors import PublicError

__all__ = ["is_restarted", "kill_server", "pack", "serve_and_restart"]

_PROCESSES: Final[Any] = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
_NEEDED: Final = ("usechat.demo.app", "usechat.server", "sqlalchemy.ext.asyncio", "alembic.command", "uvicorn")
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
_KILLED: Final = -_KILL if os.name == "posix" else int(_KILL)
"""The exit code of a process that was killed."""
_CHILD: Final = "usechat demo"
"""The name of a process that is started again when it was killed."""


def is_restarted() -> bool:
    """Tell whether this process is started again when it is killed."""
    return multiprocessing.current_process().name == _CHILD


async def pack(thing: str) -> str:
    """Pack a thing, and say who did it."""
    await asyncio.sleep(0.5)
    return f"{thing}, packed by process {os.getpid()}"


async def kill_server() -> None:
    """Kill this process, which has no time to say goodbye."""
    if not is_restarted():
        raise PublicError("Only `usechat demo` starts its server again, so this one was not killed.")
    await asyncio.sleep(1)  # the page has shown what was said before
    os.kill(os.getpid(), _KILL)


def serve_and_restart(arguments: Sequence[str], *, port: int, shows_page: bool) -> int:
    """Serve in a child process, and again in another one whenever it was killed; return the last exit code."""
    for module in _NEEDED:
        import_module(module)
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="usechat-demo-", ignore_cleanup_errors=True) as directory:
        secret = Path(directory) / "secret"
        secret.write_text(secrets.token_hex(), encoding="utf-8")
        stored = ["--chats", str(Path(directory) / "chats.db"), "--approval-secret", str(secret)]
        command = ["serve", *arguments, *stored, "--port", str(port or _free_port())]
        code = _run([*command, *(["--open"] if shows_page else [])])
        while code == _KILLED:
            code = _run(command)
        return code


def _run(command: Sequence[str]) -> int:
    """Run a command in a child to its end; after a signal to this process, end it first."""
    child = _PROCESSES.Process(target=_serve, name=_CHILD, args=(command,))
    child.start()
    try:
        child.join()
    except KeyboardInterrupt:
        child.terminate()
        child.join()
        return 0
    return child.exitcode or 0


def _serve(command: Sequence[str]) -> NoReturn:
    """Run a command in this process, which ends when its parent does, however that ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main(command))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _free_port() -> int:
    """Return a port that every child can have, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

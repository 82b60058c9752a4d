"""Worker processes that evaluate expressions, and are killed when one takes too long.

A regular expression can take longer than the age of the universe, and nothing interrupts it within a process. So an
expression that calls anything is evaluated in a worker: a process that evaluates one request at a time, with a limit
on its memory. Idle workers are kept. They end with this process, whose end closes their input.
"""

import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from usechat.errors import ExpressionFailed
from usechat.open_harness.flow import evaluation
from usechat.open_harness.threads import in_thread
from usechat.protocol.values import json_text

__all__ = ["evaluate_in_worker"]

_MAXIMUM_WORKERS: Final = max(2, os.cpu_count() or 2)
_START_SECONDS: Final = 60.0
"""How long a worker may take to start; that does not count as the time of the expression."""

_idle: Final[list["_Worker"]] = []
_slots: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


class _Worker:
    """One process. It is used by one thread at a time."""

    def __init__(self) -> None:
        # -P: what lies in the working directory must not shadow a module that the worker imports.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(evaluation.__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._using = threading.Lock()
        self.is_ready = False

    def wait_until_ready(self) -> None:
        """Wait for the frame that says that the worker takes requests."""
        self._receive()
        self.is_ready = True

    def ask(self, request: bytes) -> bytes:
        """Send a request and wait for the answer."""
        assert self._process.stdin is not None, "it is a pipe"
        evaluation.write_frame(self._process.stdin, request)  # type: ignore[arg-type]
        return self._receive()

    def kill(self) -> None:
        """Kill the process and wait for its end, in a thread: another one may be waiting for its answer."""
        self._process.kill()
        threading.Thread(target=self._release, name="usechat-expressions", daemon=True).start()

    def close(self) -> None:
        """Kill the process, which does nothing at the moment."""
        self._process.kill()
        self._release()

    def _receive(self) -> bytes:
        assert self._process.stdout is not None, "it is a pipe"
        with self._using:
            frame = evaluation.read_frame(self._process.stdout)  # type: ignore[arg-type]
        if frame is None:
            raise ExpressionFailed("the process that evaluates expressions ended: it needs too much memory")
        return frame

    def _release(self) -> None:
        self._process.wait()
        with self._using:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None, "it is a pipe"
                with contextlib.suppress(BrokenPipeError):  # a request that was not sent in full
                    pipe.close()


async def evaluate_in_worker(
    texts: Sequence[str], values: Mapping[str, Any], scopes: Sequence[Mapping[str, Any]], timeout_ms: float
) -> list[list[Mapping[str, Any]]]:
    """Evaluate expressions in a worker; return for each scope a list of ``{"value": …}`` or ``{"error": …}``.

    A scope is ``{"values": …, "variables": …}``; its values are added to those that all scopes share. Raises
    ExpressionFailed if the whole takes longer than the limit. The worker is killed then, and when this is cancelled.
    """
    request = {"texts": list(texts), "values": values, "scopes": list(scopes), "timeoutMs": timeout_ms}
    slots = _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MAXIMUM_WORKERS))
    async with slots:
        worker = _idle.pop() if _idle else _Worker()
        try:
            if not worker.is_ready:
                async with asyncio.timeout(_START_SECONDS):
                    await in_thread(worker.wait_until_ready)
            async with asyncio.timeout(timeout_ms / 1000):
                frame = await in_thread(lambda: worker.ask(json_text(request).encode()))
        except BaseException as error:
            worker.kill()
            if isinstance(error, TimeoutError):
                raise ExpressionFailed(f"{_named(texts)} timed out after {timeout_ms:g} ms") from None
            raise
        _idle.append(worker)
    answers: list[list[Mapping[str, Any]]] = json.loads(frame)
    return answers


def _named(texts: Sequence[str]) -> str:
    quoted = ", ".join(map(repr, texts))
    return f"the expression {quoted}" if len(texts) == 1 else f"one of the expressions {quoted}"


@atexit.register
def _close_idle_workers() -> None:
    while _idle:
        _idle.pop().close()

"""Evaluator processes: they evaluate expressions, and are killed when one takes too long.

A regular expression can take longer than the age of the universe, and nothing interrupts it within a process. So an
expression that calls anything is evaluated in an evaluator: a process that evaluates one request at a time, with a
limit on its memory. Idle evaluators are kept. They end with this process, whose end closes their input.

An evaluator keeps the values of the flow run that it worked for last, so that a node which runs for each item of a list
does not send them all for each item: only values that changed, and the new items of a list that grows, are sent.

No owner has more than half of the evaluators at a time: the expressions of one person's messages, however long they
take, do not block those of others. The time that a request waits counts into its time limit.
"""

import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from usechat.open_harness.errors import ExpressionFailed
from usechat.open_harness.flow import evaluation
from usechat.open_harness.threads import in_thread
from usechat.values import encode_json, json_value

__all__ = ["Requester", "evaluate_in_process"]

_MAXIMUM: Final = 2 * max(2, os.cpu_count() or 2)
_START_SECONDS: Final = 60.0
"""How long an evaluator may take to start; that does not count as the time of the expression."""
_PIPE_BYTES: Final = 32 * 1024
"""What an empty pipe takes without blocking."""
_READ_BYTES: Final = 64 * 1024
"""How much is read from a pipe at a time."""
_SMALL: Final = 2_000
"""How many values and characters are written as JSON in the event loop's thread."""
_CAN_WATCH_PIPES: Final = os.name != "nt"
"""Whether event loops can watch pipes; on Windows they can watch only sockets."""
_KEPT_BYTES: Final = 32 * 1024 * 1024
"""How much may have been sent to an evaluator for one run; with more, it forgets the values."""


class Requester(NamedTuple):
    """The flow run whose expressions are evaluated, and who it belongs to.

    ``growing`` names the outputs to whose ``iterations`` items are being added. All other values of a run are replaced
    when they change, so a value that is the same object as before has not changed.
    """

    owner: str = ""
    run_id: str = ""
    growing: Collection[str] = ()


class _Evaluator:
    """One process, which takes one request at a time."""

    def __init__(self) -> None:
        # -P: what lies in the working directory must not shadow a module that the evaluator imports.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(evaluation.__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._using = threading.Lock()
        self.is_ready = False
        self.run_id = ""
        self._values: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}
        self._sent_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = bytearray()
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def is_free_for(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether an event loop may use it: no other one that runs reads its answers."""
        return self._loop is None or self._loop is loop or self._loop.is_closed()

    async def wait_until_ready(self) -> None:
        """Wait for the frame that says that the evaluator takes requests."""
        async with asyncio.timeout(_START_SECONDS):
            await (self._next_frame() if _CAN_WATCH_PIPES else in_thread(self._receive))
        self.is_ready = True

    async def ask(
        self,
        texts: Sequence[str],
        values: Mapping[str, Any],
        own: Mapping[str, Any],
        requester: Requester,
        deadline: float,
    ) -> bytes:
        """Send a request and return the answer; raise TimeoutError at the deadline, which is a time of the event loop.

        The time in which the process starts does not count. Large requests are written in a thread, because a pipe that
        is full blocks. For a small one, such as that of each item of a list, a thread would take longer than the
        evaluation; and one timer for each request would slow the event loop down.
        """
        if not self.is_ready:
            now = asyncio.get_running_loop().time
            began = now()
            await self.wait_until_ready()
            deadline += now() - began
        news = self._news(values, requester)
        request = {"texts": texts, "names": list(values), "own": own, **news}
        frame = b""
        if _CAN_WATCH_PIPES and _is_small([news["values"], news["grown"], own]):
            frame = encode_json(request)
        if 0 < len(frame) <= _PIPE_BYTES:
            answer = self._next_frame()
            self._watch(deadline)
            self._send(frame)
            return await answer
        self._stop_timer()
        async with asyncio.timeout_at(deadline):
            if not _CAN_WATCH_PIPES:
                return await in_thread(lambda: self._exchange(request))
            answer = self._next_frame()
            await in_thread(lambda: self._send(frame or encode_json(request)))
            return await answer

    def _watch(self, deadline: float) -> None:
        """Let the awaited answer fail at the deadline. One timer serves many requests: an early one is set again."""
        assert self._loop is not None, "it watches the pipe"
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._stop_timer()
            self._timer = self._loop.call_at(deadline, self._end_of_timer)

    def _end_of_timer(self) -> None:
        assert self._loop is not None, "it has the timer"
        assert self._answer is not None, "an answer was awaited"
        self._timer = None
        if self._answer.done():
            return
        if self._loop.time() < self._deadline:
            self._watch(self._deadline)
        else:
            self._answer.set_exception(TimeoutError())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_frame(self) -> "asyncio.Future[bytes]":
        """Return a future of the next frame. The event loop watches the pipe from the first time on."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._stop_timer()
            self._loop = loop
            loop.add_reader(self._answers.fileno(), self._read)
        self._answer = loop.create_future()
        return self._answer

    def _read(self) -> None:
        """Read what has arrived: pieces of a frame, or nothing if the process has ended."""
        assert self._loop is not None, "it watches the pipe"
        assert self._answer is not None, "the first frame was awaited"
        piece = os.read(self._answers.fileno(), _READ_BYTES)
        self._received += piece
        is_awaited = not self._answer.done()
        if not piece:
            self._loop.remove_reader(self._answers.fileno())
            if is_awaited:
                self._answer.set_exception(_ended())
            elif self in _idle:  # the system killed it
                _idle.remove(self)
                self.close()
        elif is_awaited and (frame := evaluation.frame_in(self._received)) is not None:
            self._received.clear()
            self._answer.set_result(frame)

    def _exchange(self, request: Mapping[str, Any]) -> bytes:
        self._send(encode_json(request))
        return self._receive()

    def _send(self, frame: bytes) -> None:
        self._sent_bytes += len(frame)
        try:
            evaluation.write_frame(self._requests, frame)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise _ended() from None

    def kill(self) -> None:
        """Kill the process and wait for its end, in a thread: another one may be waiting for its answer."""
        self._stop_timer()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._answers.fileno())
        self._process.kill()
        threading.Thread(target=self._release, name="usechat-expressions", daemon=True).start()

    def close(self) -> None:
        """Kill the process and wait for its end. No expression is being evaluated in it."""
        self._process.kill()
        self._release()

    def _news(self, values: Mapping[str, Any], requester: Requester) -> dict[str, Any]:
        """Return what the process does not know yet, and remember that it does."""
        forgets = not requester.run_id or requester.run_id != self.run_id or self._sent_bytes > _KEPT_BYTES
        if forgets:
            self.run_id, self._values, self._lengths, self._sent_bytes = requester.run_id, {}, {}, 0
        changed: dict[str, Any] = {}
        grown: dict[str, list[Any]] = {}
        for name, value in values.items():
            is_known = name in self._values and self._values[name] is value
            if is_known and name in self._lengths:
                grown[name] = self._new_items(name, value)
            elif not is_known:
                self._values[name] = changed[name] = value
                self._lengths.pop(name, None)
                if name in requester.growing:
                    changed[name] = {"iterations": self._new_items(name, value)}
        return {"forgets": forgets, "values": changed, "grown": grown}

    def _new_items(self, name: str, value: Mapping[str, Any]) -> list[Any]:
        """Return the items that were added. The length is read once: the event loop may be adding others."""
        items: list[Any] = value["iterations"]
        begin, end = self._lengths.get(name, 0), len(items)
        self._lengths[name] = end
        return items[begin:end]

    def _receive(self) -> bytes:
        with self._using:
            frame = evaluation.read_frame(self._answers)  # type: ignore[arg-type]
        if frame is None:
            raise _ended()
        return frame

    def _release(self) -> None:
        self._process.wait()
        with self._using:
            for pipe in (self._requests, self._answers):
                with contextlib.suppress(BrokenPipeError):  # a request that was not sent in full
                    pipe.close()


def _ended() -> ExpressionFailed:
    return ExpressionFailed("the process that evaluates expressions ended: it needs too much memory")


def _is_small(values: list[Any]) -> bool:
    """Return whether plain JSON values are written in a moment; it takes no longer to find out."""
    left = _SMALL
    waiting = values
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind is dict:
            left -= len(each)
            waiting += each.values()
        elif kind is list:
            left -= len(each)
            waiting += each if left > 0 else ()
        elif kind is str:
            left -= len(each)
        if left < 0:
            return False
    return True


class _Slots:
    """How many evaluators are in use: by all, and by each owner."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[None], str] = {}

    async def take(self, owner: str, deadline: float) -> None:
        """Take a slot, or wait for one; raise TimeoutError at the deadline."""
        if self._has_one_for(owner):
            self._used[owner] += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting[granted] = owner
        try:
            async with asyncio.timeout_at(deadline):
                await granted
        except BaseException:
            if self._waiting.pop(granted, None) is None:
                self.give_back(owner)
            raise

    def give_back(self, owner: str) -> None:
        """Give back a slot, to the first who waits and may have it."""
        self._used[owner] -= 1
        if not self._used[owner]:
            del self._used[owner]
        for granted, waiting in self._waiting.items():
            if not granted.done() and self._has_one_for(waiting):
                del self._waiting[granted]
                self._used[waiting] += 1
                granted.set_result(None)
                return

    def _has_one_for(self, owner: str) -> bool:
        return self._used.total() < _MAXIMUM and self._used[owner] < _MAXIMUM // 2


_idle: Final[list[_Evaluator]] = []
_slots: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots]] = WeakKeyDictionary()


async def evaluate_in_process(
    texts: Sequence[str],
    values: Mapping[str, Any],
    own: Mapping[str, Any],
    timeout_ms: float,
    requester: Requester,
) -> list[Mapping[str, Any]]:
    """Evaluate expressions in an evaluator; return ``{"value": …}``, ``{"error": …}`` or, for nothing, ``{}`` for each.

    Values are plain JSON values. ``own``, ``{"values": …, "variables": …}``, are those of an item of a list. Raises
    ExpressionFailed if the whole takes longer than the limit. The evaluator is killed then, and when this is cancelled.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    slots = _slots_of(loop)
    try:
        await slots.take(requester.owner, deadline)
        try:
            evaluator = _take(requester.run_id, loop)
            try:
                frame = await evaluator.ask(texts, values, own, requester, deadline)
            except BaseException:
                evaluator.kill()
                raise
            _idle.append(evaluator)
        finally:
            slots.give_back(requester.owner)
    except TimeoutError:
        raise ExpressionFailed(f"{_named(texts)} timed out after {timeout_ms:g} ms") from None
    return _answers(frame) if len(frame) <= _PIPE_BYTES else await in_thread(lambda: _answers(frame))


def _answers(frame: bytes) -> list[Mapping[str, Any]]:
    answers = json.loads(frame.decode())
    return [{"value": json_value(each["value"])} if "value" in each else each for each in answers]


def _slots_of(loop: asyncio.AbstractEventLoop) -> _Slots:
    slots = _slots.get(loop)
    if slots is None:
        slots = _slots[loop] = _Slots()
    return slots


def _take(run_id: str, loop: asyncio.AbstractEventLoop) -> _Evaluator:
    """Return an idle evaluator, if possible the one that knows the values of the run, or a new one."""
    free = [evaluator for evaluator in _idle if evaluator.is_free_for(loop)]
    if not free:
        return _Evaluator()
    knowing = [evaluator for evaluator in free if run_id and evaluator.run_id == run_id]
    evaluator = (knowing or free)[-1]
    _idle.remove(evaluator)
    return evaluator


def _named(texts: Sequence[str]) -> str:
    quoted = ", ".join(map(repr, texts))
    return f"the expression {quoted}" if len(texts) == 1 else f"one of the expressions {quoted}"


@atexit.register
def _close_idle_evaluators() -> None:
    while _idle:
        _idle.pop().close()

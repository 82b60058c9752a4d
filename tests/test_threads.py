"""The threads in which plain functions answer."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from usechat.errors import PublicError
from usechat.threads import FULL, AgentThreads

pytestmark = pytest.mark.quick

PATIENCE = 30.0
NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name")


async def test_a_function_sees_the_variables_of_its_caller() -> None:
    NAME.set("ada")
    threads = AgentThreads()
    assert await threads.run(lambda: (NAME.get(), threading.current_thread().daemon)) == ("ada", True)


async def test_as_many_functions_as_there_are_threads_run_at_once() -> None:
    barrier = threading.Barrier(40)
    threads = AgentThreads(40)
    numbers = await asyncio.gather(*[threads.run(barrier.wait, PATIENCE) for _ in range(40)])
    assert sorted(numbers) == list(range(40))


async def test_more_wait_until_a_thread_is_free_and_are_counted() -> None:
    changes: list[int] = []
    threads = AgentThreads(1, on_waiting=changes.append)
    gate = threading.Event()
    first = asyncio.ensure_future(threads.run(gate.wait, PATIENCE))
    second = asyncio.ensure_future(threads.run(lambda: "second"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert changes == [1]
    gate.set()
    assert (await first, await second, changes) == (True, "second", [1, -1])


async def test_whoever_waits_too_long_gets_a_sentence() -> None:
    threads = AgentThreads(1, patience=0.01)
    gate = threading.Event()
    first = asyncio.ensure_future(threads.run(gate.wait, PATIENCE))
    await asyncio.sleep(0)
    with pytest.raises(PublicError, match=FULL):
        await threads.run(lambda: None)
    gate.set()
    assert await first
    assert await threads.run(lambda: "free again") == "free again"


async def test_a_function_that_hangs_and_was_abandoned_blocks_nobody() -> None:
    threads = AgentThreads(1)
    gate = threading.Event()
    hanging = asyncio.ensure_future(threads.run(gate.wait, PATIENCE))
    waiting = asyncio.ensure_future(threads.run(lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    hanging.cancel()
    await asyncio.wait([hanging, waiting])
    assert await threads.run(lambda: "free") == "free"
    finishing = asyncio.ensure_future(threads.finish(PATIENCE))
    await asyncio.sleep(0)
    assert not finishing.done()
    gate.set()
    await finishing


async def test_a_failure_is_raised_where_the_function_was_called() -> None:
    with pytest.raises(SystemExit):
        await AgentThreads().run(lambda: exec("raise SystemExit(1)"))
    with pytest.raises(RuntimeError, match="the agent raised StopIteration"):
        await AgentThreads().run(next, iter(()))


class Later:
    async def __call__(self, name: str) -> tuple[str, bool]:
        return name, in_main_thread()


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


async def later(name: str) -> tuple[str, bool]:
    return name, in_main_thread()


@pytest.mark.parametrize(
    ("function", "is_in_loop"),
    [
        (later, True),
        (Later(), True),
        (functools.partial(later), True),
        (lambda name: later(f"{name}"), True),  # called in a thread, awaited in the event loop
        (lambda name: (name, in_main_thread()), False),
    ],
    ids=["async", "object", "partial", "returns-coroutine", "plain"],
)
async def test_a_function_is_called_in_a_thread_unless_it_is_async(
    function: Callable[[str], Any], is_in_loop: bool
) -> None:
    assert await AgentThreads().call(function, "ada") == ("ada", is_in_loop)

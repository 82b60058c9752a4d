"""The log of a run: frames in order, readers that wait, and what happens to those who cannot follow."""

import asyncio

from usechat.runs.log import Log, Wake


async def test_frames_of_one_turn_of_the_loop_come_together() -> None:
    log = Log()
    reader = log.reader()
    log.append(b"a")
    log.append(b"b")
    assert log.pending == 2
    assert await reader.read() == b"ab"
    assert (log.pending, log.size) == (0, 2)


async def test_a_reader_waits_for_what_is_new_and_for_the_end() -> None:
    log = Log()
    reader = log.reader()
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    assert not waiting.done()
    log.append(b"a")
    assert await waiting == b"a"
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    log.end()
    assert await waiting is None
    assert await reader.read() is None


async def test_a_late_reader_starts_anywhere() -> None:
    log = Log()
    log.append(b"a")
    late, live = log.reader(), log.reader(from_start=False)
    log.append(b"b")
    log.end()
    assert (await late.read(), await live.read()) == (b"ab", b"b")
    assert log.so_far() == b"ab"


async def test_a_log_that_is_not_kept_forgets_what_was_taken() -> None:
    log = Log(keep=False)
    reader = log.reader()
    log.append(b"a")
    assert await reader.read() == b"a"
    log.append(b"b")
    assert log.so_far() == b"b"
    reader.close()
    assert log.readers == 0


async def test_what_is_flushed_is_told() -> None:
    heard: list[bytes] = []
    log = Log(on_flush=heard.append)
    log.append(b"a")
    log.append(b"b")
    log.flush()
    log.flush()
    assert heard == [b"ab"]


async def test_a_reader_that_falls_behind_is_told_once_it_is_too_far() -> None:
    log = Log()
    reader = log.reader(maximum_behind=3)
    interrupted: list[bool] = []
    reader.on_too_slow = lambda: interrupted.append(True)
    log.append(b"abc")
    log.flush()
    assert (reader.behind, interrupted) == (3, [])
    log.append(b"d")
    log.flush()
    assert (interrupted, await reader.read()) == ([True], Wake.TOO_SLOW)
    reader.skip()
    assert reader.behind == 0


async def test_one_large_thing_does_not_make_a_reader_slow() -> None:
    log = Log()
    reader = log.reader(maximum_behind=3)
    reading = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    log.append(b"abcdef")
    assert await reading == b"abcdef"
    log.append(b"ghijkl")
    log.flush()
    assert await reader.read() == b"ghijkl"


async def test_a_reader_without_an_interrupt_learns_it_at_its_next_read() -> None:
    log = Log()
    reader = log.reader(maximum_behind=0)
    log.append(b"a")
    log.flush()
    assert await reader.read() is Wake.TOO_SLOW


async def test_reasons_wake_a_reader_and_silence_gives_way() -> None:
    log = Log()
    reader = log.reader()
    reader.wake(Wake.SILENCE)
    reader.wake(Wake.GONE)
    reader.wake(Wake.BROKEN_OFF)
    assert await reader.read() is Wake.GONE
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    log.break_off()
    log.break_off()
    assert await waiting is Wake.BROKEN_OFF

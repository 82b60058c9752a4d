"""The log of a run: frames in order, readers that wait, and the backlog limit."""

import asyncio
from collections.abc import Callable

import pytest

from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.reframing import shorten
from usechat.protocol.sse import encode_frame
from usechat.runs.log import Log, Reader, Wake


class Pushed:
    """Takes frames; when it is full, it lets its reader wait."""

    def __init__(self, reader: Reader) -> None:
        self.frames: list[bytes] = []
        self.full = False
        self._reader = reader

    def push(self, frames: bytes) -> None:
        self.frames.append(frames)
        if self.full:
            self._reader.wake(Wake.UNSENT)


async def write(log: Log, frames: bytes) -> None:
    """Write frames in an iteration of the event loop of their own."""
    log.append(frames)
    log.flush()
    await asyncio.sleep(0)


def pushing(log: Log, *, maximum_behind: int | None = None) -> tuple[Reader, Pushed]:
    reader = log.reader(maximum_behind=maximum_behind)
    reader.pusher = pushed = Pushed(reader)
    return reader, pushed


async def test_a_log_that_fails_to_flush_does_not_delay_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_frames: bytes) -> None:
        raise OSError("disk full")

    broken_log, log = Log(on_flush=fail), Log()
    reader = log.reader()
    broken_log.append(b"a")
    log.append(b"b")
    assert await reader.read() == b"b"
    assert [record.message for record in caplog.records] == [
        "flushing a log failed: its clients miss frames until they resume"
    ]


async def test_frames_of_one_iteration_of_the_event_loop_come_together() -> None:
    log = Log()
    reader = log.reader()
    log.append(b"a")
    log.append(b"b")
    assert (log.size, log.flushed) == (2, 0)
    assert await reader.read() == b"ab"
    assert (log.size, log.flushed) == (2, 2)


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


async def test_a_late_reader_begins_behind_what_was_written() -> None:
    log = Log()
    log.append(b"a")
    late = log.reader()
    assert log.so_far() == b"a"
    log.append(b"b")
    log.end()
    assert await late.read() == b"b"
    assert log.so_far() == b"ab"


async def test_frames_that_all_readers_have_are_kept_in_compact_form() -> None:
    log = Log()
    reader, pushed = pushing(log)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    frames = [encode_frame(TextDeltaChunk("1", f"word {number} ")) for number in range(100)]
    for frame in frames:
        log.append(frame)
        log.flush()
    slow = log.reader()
    for frame in frames:
        log.append(frame)
        log.flush()
    assert await slow.read() == b"".join(frames)
    log.end()
    assert (pushed.frames, await waiting) == ([*frames, *frames], None)
    words = "".join(f"word {number} " for number in range(100))
    assert len(log.so_far()) < len(words) * 2 + len(b"".join(frames)) + 2048
    assert shorten(log.so_far()) == encode_frame(TextDeltaChunk("1", words * 2))


async def test_frames_are_merged_only_once_enough_of_them_have_come() -> None:
    log = Log()
    log.append(encode_frame(TextDeltaChunk("1", "x" * 1500)))
    log.flush()
    assert log.size < 2048
    later = b"".join(encode_frame(TextDeltaChunk("1", f"word {number:2} ")) for number in range(16))
    log.append(later)
    log.flush()
    assert 2048 < log.size < 2048 + 1024
    assert log.so_far().endswith(later)


async def test_a_kilobyte_is_kept_as_it_was_written() -> None:
    log = Log()
    frame = encode_frame(TextDeltaChunk("1", ""))
    text = "x" * (512 - len(frame))
    for count in (2, 3):
        while log.size < count * 512:
            log.append(encode_frame(TextDeltaChunk("1", text)))
            log.flush()
        frames = [text] * 2 if count == 2 else [text * 3]
        assert log.so_far() == b"".join(encode_frame(TextDeltaChunk("1", text)) for text in frames)


async def test_what_a_late_reader_was_given_is_not_repeated_while_another_one_is_slow() -> None:
    log = Log()
    slow = log.reader()
    first, second = (encode_frame(TextDeltaChunk(block, "x" * 2000)) for block in "12")
    log.append(first)
    late = log.reader(from_start=True)
    assert late.replay() == first
    log.append(second)
    log.flush()
    assert [late.replay(), late.replay()] == [second, None]
    assert (log.so_far(), await slow.read()) == (first + second, first + second)


async def test_a_log_that_is_not_kept_forgets_what_was_taken() -> None:
    log = Log(keep=False)
    reader = log.reader()
    log.append(b"a")
    assert await reader.read() == b"a"
    log.append(b"b")
    assert log.so_far() == b"b"
    reader.close()
    assert log.readers == 0


async def test_frames_that_are_flushed_together_are_found_behind_what_was_forgotten() -> None:
    flushed: list[bytes] = []
    log = Log(keep=False, on_flush=flushed.append)
    reader = log.reader()
    for together in ((b"abc", b"d"), (b"e", b"f")):
        for frames in together:
            log.append(frames)
        assert await reader.read() == b"".join(together)
    assert flushed == [b"abcd", b"ef"]


@pytest.mark.parametrize(("keep", "left"), [(False, b""), (True, b"a")])
async def test_what_a_reader_skips_is_forgotten_by_a_log_that_is_not_kept(keep: bool, left: bytes) -> None:
    log = Log(keep=keep)
    reader = log.reader()
    log.append(b"a")
    log.flush()
    reader.skip()
    assert log.so_far() == left
    log.append(b"b")
    assert await reader.read() == b"b"


async def test_every_flush_is_reported() -> None:
    events: list[bytes] = []
    log = Log(on_flush=events.append)
    log.append(b"a")
    log.append(b"b")
    log.flush()
    log.flush()
    assert events == [b"ab"]


async def test_a_reader_is_too_slow_once_it_exceeds_the_backlog_limit() -> None:
    log = Log()
    reader = log.reader(maximum_behind=3)
    interrupted: list[bool] = []
    reader.on_cut = lambda _why: interrupted.append(True)
    await write(log, b"abc")
    assert (reader.behind, interrupted) == (3, [])
    await write(log, b"d")
    assert (interrupted, await reader.read()) == ([True], Wake.TOO_SLOW)
    reader.skip()
    assert reader.behind == 0


async def test_what_the_last_read_returned_counts_until_the_next_read() -> None:
    log = Log()
    reader = log.reader()
    log.append(b"abc")
    assert (await reader.read(), reader.behind) == (b"abc", 3)
    log.append(b"de")
    assert reader.behind == 5
    log.append(b"f")
    assert (reader.behind, await reader.read(), reader.behind) == (6, b"def", 3)


async def test_a_single_oversized_frame_does_not_make_a_reader_too_slow() -> None:
    log = Log()
    reader = log.reader(maximum_behind=3)
    reading = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    log.append(b"abcdef")
    assert await reading == b"abcdef"
    log.append(b"ghijkl")
    log.flush()
    assert await reader.read() == b"ghijkl"


async def test_a_reader_that_has_read_beyond_an_oversized_frame_may_get_another() -> None:
    log = Log()
    reader = log.reader(maximum_behind=300)
    for large in (b"a" * 1000, b"c" * 1000):
        for frames in (large, b"b"):
            await write(log, frames)
        assert await reader.read() == large + b"b"
    await write(log, b"d" * 200)
    assert reader.behind == 200
    await write(log, b"e" * 101)
    assert await reader.read() is Wake.TOO_SLOW


async def test_what_is_written_in_one_iteration_of_the_loop_does_not_make_a_reader_too_slow() -> None:
    log = Log()
    reader = log.reader(maximum_behind=10_000)
    for _ in range(4):
        log.append(b"a" * 5000)
        log.flush()
    await asyncio.sleep(0)
    await write(log, b"b" * 10_000)
    assert (reader.behind, reader.take_wake()) == (30_000, None)
    await write(log, b"c")
    assert await reader.read() is Wake.TOO_SLOW


async def test_a_log_that_is_not_kept_is_full_while_a_reader_has_half_of_its_limit_unread() -> None:
    log = Log(keep=False)
    reader = log.reader(maximum_behind=10)
    assert not log.append(b"abcde")
    log.flush()
    assert not log.is_full
    log.append(b"f")
    log.flush()
    assert (log.is_full, log.append(b"")) == (True, True)
    waiting = [asyncio.ensure_future(log.room()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    assert await reader.read() == b"abcdef"
    await asyncio.sleep(0)
    assert not waiting[1].done(), "what was read may not be sent yet"
    reading = asyncio.ensure_future(reader.read())
    await waiting[1]
    assert (log.is_full, log.taken) == (False, 6)
    reading.cancel()


@pytest.mark.parametrize("leave", [Reader.close, Reader.skip])
async def test_it_is_not_full_when_the_reader_reads_no_more(leave: Callable[[Reader], None]) -> None:
    log = Log(keep=False)
    reader = log.reader(maximum_behind=10)
    log.append(b"abcdef")
    log.flush()
    waiting = asyncio.ensure_future(log.room())
    await asyncio.sleep(0)
    leave(reader)
    await waiting
    assert not log.is_full


async def test_a_log_that_is_kept_is_never_full() -> None:
    log = Log()
    reader = log.reader(maximum_behind=10)
    log.append(b"abcdefghij")
    log.flush()
    assert (reader.behind, log.is_full) == (10, False)


async def test_an_oversized_frame_counts_until_it_is_read() -> None:
    log = Log()
    reader = log.reader(maximum_behind=3)
    for frames in (b"ab", b"c" * 100_000):
        await write(log, frames)
    first = await reader.read()
    assert isinstance(first, bytes)
    assert (first, reader.behind) == (b"ab" + b"c" * 100_000, 0)


async def test_a_reader_without_a_callback_returns_the_reason_at_its_next_read() -> None:
    log = Log()
    reader = log.reader(maximum_behind=1)
    for frames in (b"a", b"b"):
        await write(log, frames)
    assert await reader.read() is Wake.TOO_SLOW


async def test_reasons_wake_a_reader_and_any_overrides_silence() -> None:
    log = Log()
    reader = log.reader()
    reader.wake(Wake.SILENCE)
    reader.wake(Wake.GONE)
    reader.wake(Wake.SHUTDOWN)
    assert await reader.read() is Wake.GONE
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    reader.wake(Wake.SHUTDOWN)
    reader.wake(Wake.SHUTDOWN)
    assert await waiting is Wake.SHUTDOWN


async def test_a_writer_that_holds_the_log_flushes_it() -> None:
    log = Log()
    reader = log.reader()
    log.is_held = True
    log.append(b"a")
    await asyncio.sleep(0)
    assert log.flushed == 0
    log.release()
    log.append(b"b")
    assert await reader.read() == b"ab"


async def test_a_writer_that_wrote_much_should_yield_to_the_event_loop() -> None:
    log = Log()
    assert [log.append(b"x" * 2048), log.append(b"x" * 2048)] == [False, True]
    log.flush()
    assert not log.append(b"x")


@pytest.mark.parametrize("keep", [True, False])
async def test_frames_are_pushed_while_a_reader_waits(keep: bool) -> None:
    log = Log(keep=keep)
    reader, pushed = pushing(log)
    log.append(b"a")
    log.flush()
    assert await reader.read() == b"a"
    assert pushed.frames == []
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    for frames in (b"b", b"c"):
        log.append(frames)
        log.flush()
    await asyncio.sleep(0)
    assert (pushed.frames, waiting.done(), reader.behind) == ([b"b", b"c"], False, 0)
    log.end()
    assert await waiting is None
    assert log.so_far() == (b"abc" if keep else b"")


async def test_a_reader_with_unsent_frames_is_woken_and_reads_on_by_itself() -> None:
    log = Log()
    reader, pushed = pushing(log, maximum_behind=2)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    pushed.full = True
    for frames in (b"a", b"b"):
        log.append(frames)
        log.flush()
    reader.wake(Wake.GONE)
    assert (pushed.frames, await waiting) == ([b"a"], Wake.UNSENT)
    assert [await reader.read(), await reader.read()] == [Wake.GONE, b"b"]


async def test_a_reader_with_unsent_frames_may_become_too_slow() -> None:
    log = Log()
    reader, pushed = pushing(log, maximum_behind=2)
    interrupted: list[bool] = []
    reader.on_cut = lambda _why: interrupted.append(True)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    pushed.full = True
    for frames in (b"abc", b"de", b"f"):
        await write(log, frames)
    assert (interrupted, await waiting, await reader.read()) == ([True], Wake.UNSENT, Wake.TOO_SLOW)


async def test_each_of_several_readers_gets_everything_in_its_own_way() -> None:
    log = Log(keep=False)
    pushed_to, pushed = pushing(log)
    waits, late = log.reader(), log.reader()
    waiting = [asyncio.ensure_future(reader.read()) for reader in (pushed_to, waits)]
    await asyncio.sleep(0)
    log.append(b"a")
    log.flush()
    log.append(b"b")
    log.flush()
    assert (pushed.frames, await waiting[1], await late.read()) == ([b"a", b"b"], b"ab", b"ab")
    pushed_to.wake(Wake.SHUTDOWN)
    assert await waiting[0] is Wake.SHUTDOWN


async def test_waking_a_cancelled_reader_does_nothing() -> None:
    log = Log()
    reader = log.reader()
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    waiting.cancel()
    log.append(b"a")
    log.flush()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await reader.read() == b"a"


async def test_a_flush_callback_may_write_more() -> None:
    def tell(frames: bytes) -> None:
        if frames == b"a":
            log.append(b"b")
            log.flush()

    log = Log(on_flush=tell)
    reader, pushed = pushing(log)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    log.append(b"a")
    log.flush()
    log.end()
    assert (pushed.frames, await waiting, log.so_far()) == ([b"a", b"b"], None, b"ab")


async def test_coalesced_frames_are_sent_together() -> None:
    log = Log(coalesce=0.02)
    reader = log.reader()
    began = log.loop.time()
    for frames in (b"a", b"b"):
        log.append(frames)
        await asyncio.sleep(0)
    assert await reader.read() == b"ab"
    assert log.loop.time() - began >= 0.019
    log.append(b"c")
    log.end()
    assert (await reader.read(), await reader.read()) == (b"c", None)


async def test_an_oversized_frame_is_added_to_the_backlog_limit() -> None:
    log = Log()
    reader = log.reader(maximum_behind=300)
    for frames in (b"a" * 301, b"b" * 299, b"c"):  # 300 | 301 is less than 300 + 301
        log.append(frames)
        log.flush()
    assert reader.behind == 601
    assert await reader.read() == b"a" * 301 + b"b" * 299 + b"c"


async def test_a_large_frame_that_was_pushed_is_not_unread() -> None:
    log = Log()
    reader, pushed = pushing(log, maximum_behind=300)
    waiting = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0)
    for frames in (b"a" * 1000, b"b" * 1000):
        log.append(frames)
        log.flush()
    pushed.full = True
    log.append(b"c")
    log.flush()
    assert await waiting is Wake.UNSENT
    await write(log, b"d" * 301)
    await write(log, b"e" * 301)
    assert await reader.read() is Wake.TOO_SLOW

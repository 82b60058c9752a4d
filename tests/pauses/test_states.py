"""States of paused agents in memory: bounded."""

from usechat.pauses.states import MemoryStates


async def test_of_too_many_states_the_oldest_are_forgotten() -> None:
    states = MemoryStates(maximum_bytes=10)
    for number in range(4):
        await states.keep_state(f"h{number}", b"12345")
    assert [await states.take_state(f"h{number}") for number in range(4)] == [None, None, b"12345", b"12345"]


async def test_a_state_that_is_replaced_or_taken_takes_no_room() -> None:
    states = MemoryStates(maximum_bytes=10)
    await states.keep_state("h0", b"12345")
    for _ in range(3):
        await states.keep_state("h1", b"54321")
    assert await states.take_state("h1") == b"54321"
    await states.keep_state("h2", b"12321")
    assert await states.take_state("h0") == b"12345"


async def test_a_state_that_is_larger_than_all_room_is_not_kept() -> None:
    states = MemoryStates(maximum_bytes=4)
    await states.keep_state("h1", b"12345")
    assert await states.take_state("h1") is None

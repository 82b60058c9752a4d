"""Processes that are killed at random moments, from fixed seeds: a small part of `make kills`."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.chats.killing import STORES, Servers, Store, draw, tell

pytestmark = pytest.mark.stores

STORIES = 2
"""Stories of one store, which are told at the same time: they wait more than they work."""
SEED = 1


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    name: Store = request.param
    return name


@pytest.fixture(scope="module")
def servers(store: Store) -> Iterator[Servers]:
    with Servers([store]) as servers:
        yield servers


async def test_answers_whose_processes_are_killed_at_random_moments_end_well(servers: Servers, store: Store) -> None:
    # No process is stopped: that takes seconds.
    stories = [draw(SEED + number, store, most_faults=2, kinds=("kill", "term")) for number in range(STORIES)]
    ends = await asyncio.gather(*[tell(story, servers) for story in stories])
    for story, told in zip(stories, ends, strict=True):
        assert not told.problems, f"{story}\n{told.problems}\n{told.logs}"
    assert sum(told.faults for told in ends) > 0

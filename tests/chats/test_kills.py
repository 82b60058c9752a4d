"""What `make kills` does: stories are drawn from seeds, and one in which nothing happens has no problems."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.chats.killing import STORES, Servers, Store, draw, tell

pytestmark = pytest.mark.stores


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    name: Store = request.param
    return name


@pytest.fixture(scope="module")
def servers(store: Store) -> Iterator[Servers]:
    with Servers([store]) as servers:
        yield servers


def test_a_seed_draws_the_same_story_each_time(store: Store) -> None:
    stories = [draw(seed, store) for seed in range(20)]
    assert stories == [draw(seed, store) for seed in range(20)]
    assert len({msgspec.json.encode(story) for story in stories}) == len(stories)
    assert {fault.kind for story in stories for fault in story.faults} == {"kill", "term", "stop"}


async def test_an_answer_whose_processes_live_ends_well(servers: Servers, store: Store) -> None:
    story = msgspec.structs.replace(draw(1, store), faults=())
    end = await tell(story, servers)
    assert not end.problems, f"{story}\n{end.problems}\n{end.logs}"
    assert end.faults == 0

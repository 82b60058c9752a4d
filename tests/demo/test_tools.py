"""The tool of the demo's agent."""

import pytest

from usechat import Turn
from usechat.demo.tools import search_docs
from usechat.testing import AgentClient

pytestmark = pytest.mark.quick


def test_the_best_passage_is_the_first_with_its_link_and_all_are_sources() -> None:
    passages = []

    async def agent(_turn: Turn) -> None:
        passages.extend(search_docs("stop button"))

    with AgentClient(agent) as client:
        sources = client.ask("hi").sources
    assert passages[0]["section"] == "Resume and stop: A stop button"
    assert passages[0]["link"] == "docs/resume.md#a-stop-button"
    assert passages[0]["text"].startswith("Call the stop route, then `stop()`:\n\n```tsx\n")
    assert [source["url"] for source in sources] == [passage["link"] for passage in passages]


def test_nothing_is_found_for_words_that_mean_nothing() -> None:
    assert search_docs("what is it about?") == []

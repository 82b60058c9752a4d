"""A LangGraph checkpointer and our chat store stay in step: the model sees what people see, also after edits."""

import pytest

from tests.adapters.frameworks import FRAMEWORKS
from tests.adapters.scripts import SCRIPTS, Chat, Script, shown
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser
from usechat.chats import MemoryChats

GRAPH = FRAMEWORKS[0]
BY_NAME = {script.name: script for script in SCRIPTS}
NAMES = ["three turns", "regenerate", "edit", "stop in a tool", "approval", "a new message while an approval waits"]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_plays_with_stored_chats(name: str, browser: Browser) -> None:
    script = BY_NAME[name]
    with script.chat(GRAPH, "chat", WITH_APPROVALS[-1], browser, chats=MemoryChats()) as chat:
        script.play(chat)


def _edit_the_first(chat: Chat) -> None:
    chat.ask("First.")
    chat.ask("Second.")
    first = chat.page.look()["messages"][0]["id"]
    assert shown(chat.ask("Other.", messageId=first)) == ["Three."]
    prompt = chat.asked()
    assert [text in prompt for text in ("First.", "One.", "Second.", "Two.", "Other.")] == [False] * 4 + [True]


def _regenerate_the_first(chat: Chat) -> None:
    chat.ask("First.")
    chat.page.call("regenerate")
    assert shown(chat.page.answer()) == ["Two."]
    assert chat.asked().count("First.") == 1
    assert "One." not in chat.asked()
    assert shown(chat.ask("Second.")) == ["Three."]
    assert [text in chat.asked() for text in ("One.", "Two.")] == [False, True]


def _return_to_an_older_answer(chat: Chat) -> None:
    chat.ask("First.")
    older = chat.page.look()["messages"][-1]["id"]
    chat.page.call("regenerate")
    assert shown(chat.page.answer()) == ["Two."]
    chat.page.call("sendMessage", {"text": "Second."}, {"body": {"parentId": older}})
    assert shown(chat.page.answer()) == ["Three."]
    assert [text in chat.asked() for text in ("One.", "Two.")] == [True, False]


PLAYS = [_edit_the_first, _regenerate_the_first, _return_to_an_older_answer]


@pytest.mark.parametrize("release", NEWEST)
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__.strip("_").replace("_", " "))
def test_thread_and_chat_stay_in_step(play: object, release: str, browser: Browser) -> None:
    assert callable(play)
    script = Script("in step", ["One.", "Two.", "Three."], play)
    with script.chat(GRAPH, "chat", release, browser, chats=MemoryChats()) as chat:
        script.play(chat)

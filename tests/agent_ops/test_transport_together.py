"""Several people and many streams on one session: everybody gets the answer to what they asked, and no other."""

import gc
from typing import Any

import pytest
from websockets.asyncio.client import connect

from examples.agent_ops_session.server import serving
from examples.agent_ops_session.session import Dialect
from tests.agent_ops.talking import DrivenTurn, until
from usechat import parts as p
from usechat.agent_ops import AgentOpsChatTransport
from usechat.agent_ops.adapter import REMOVED, WITHDRAWN

DIALECTS = ("client", "runner", "both", "bare")
"""The last one has the runner's events alone: no user messages, no statuses."""


@pytest.mark.parametrize("release", ["early", "later"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_of_two_people_gets_their_own_turn(dialect: Any, release: Any) -> None:
    async with serving(dialect=dialect, release=release) as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        for number in range(5):
            texts = [f"{user} {number}" for user in ("ada", "bob")]
            both = [DrivenTurn(transport, text, user=user) for text, user in zip(texts, ("ada", "bob"), strict=True)]
            for turn, text in zip(both, texts, strict=True):
                assert (await turn.end())[-1] == p.Finish()
                assert turn.text == f"You said: {text}"


@pytest.mark.parametrize("service_token", [None, "gateway"], ids=["two authors", "one author"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_same_words_at_the_same_moment_are_two_turns(dialect: Any, service_token: str | None) -> None:
    async with serving(dialect=dialect) as sessions:
        transport = AgentOpsChatTransport(sessions.url, service_token=service_token)
        both = [DrivenTurn(transport, "tool", user=user) for user in ("ada", "bob")]
        answers = [await turn.end() for turn in both]
    turn_ids = [part.message_id for parts in answers for part in parts if isinstance(part, p.Start)]
    assert len(set(turn_ids)) == 2
    assert [turn.text for turn in both] == ["Let me look.It is a title."] * 2


@pytest.mark.parametrize("dialect", ["client", "runner"])
async def test_each_of_a_hundred_streams_gets_its_own_turn(dialect: Any) -> None:
    async with serving(dialect=dialect) as sessions:
        transport = AgentOpsChatTransport(sessions.url, open_timeout=60)
        turns = [DrivenTurn(transport, f"number {number}", user=f"user-{number}") for number in range(100)]
        for number, turn in enumerate(turns):
            assert (await turn.end())[-1] == p.Finish()
            assert turn.text == f"You said: number {number}"
        assert transport.sockets.open_to("s1") == 0


async def test_a_prompt_waits_for_the_one_before_it_where_the_session_does_not_tell_prompts_apart() -> None:
    async with serving(dialect="bare") as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        ada = DrivenTurn(transport, "hang", user="ada")
        await until(lambda: ada.text == "Well")
        bob = DrivenTurn(transport, "hello", user="bob")
        carl = DrivenTurn(transport, "good morning", user="carl")
        leaver = DrivenTurn(transport, "never mind", user="dora")
        other = DrivenTurn(transport, "elsewhere", user="eve", session_id="s2")
        await other.end()
        await leaver.stop()
        assert [user for user, _command in sessions["s1"].commands] == ["ada"]
        await ada.stop()
        for turn, text in ((bob, "hello"), (carl, "good morning")):
            assert (await turn.end())[-1] == p.Finish()
            assert turn.text == f"You said: {text}"
        assert "dora" not in [user for user, _command in sessions["s1"].commands]


@pytest.mark.parametrize("dialect", ["client", "runner", "both"])
async def test_a_newer_prompt_replaces_the_one_in_the_single_slot_of_later_releases(dialect: Any) -> None:
    async with serving(dialect=dialect, release="later") as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        ada = DrivenTurn(transport, "hang", user="ada")
        await until(lambda: ada.text == "Well")
        bob = DrivenTurn(transport, "hello", user="bob")
        await until(lambda: sessions["s1"].queue)
        carl = DrivenTurn(transport, "good morning", user="carl")
        assert await bob.end() == [p.Error(WITHDRAWN)]
        assert [prompt.message["authorId"] for prompt in sessions["s1"].queue] == ["carl"]
        assert not carl.task.done()
        await carl.stop()
        await until(lambda: not sessions["s1"].queue)
        await ada.stop()


async def test_a_prompt_that_is_withdrawn_by_its_command_ends_for_everybody_who_reads_it() -> None:
    async with serving(release="later") as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        ada = DrivenTurn(transport, "hang", user="ada")
        await until(lambda: ada.text == "Well")
        bob = DrivenTurn(transport, "hello", user="bob")
        await until(lambda: sessions["s1"].queue)
        async with connect(sessions.url.format(id="s1"), additional_headers={"authorization": "Bearer carl"}) as carl:
            await carl.send('{"type": "queue.withdraw"}')
            assert await bob.end() == [p.Error(WITHDRAWN)]
        await ada.stop()


@pytest.mark.parametrize("dialect", ["client", "runner", "both"])
async def test_a_queued_prompt_is_told_if_the_abort_of_another_turn_removes_it(dialect: Any) -> None:
    async with serving(dialect=dialect, release="early") as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        ada = DrivenTurn(transport, "hang", user="ada")
        await until(lambda: ada.text == "Well")
        bob = DrivenTurn(transport, "hello", user="bob")
        await until(lambda: sessions["s1"].queue)
        await ada.stop()
        assert await bob.end() == [p.Error(REMOVED)]
        carl = DrivenTurn(transport, "good morning", user="carl")
        assert (await carl.end())[-1] == p.Finish()
        assert carl.text == "You said: good morning"


@pytest.mark.parametrize("dialect", ["client", "runner", "both"])
async def test_a_queued_prompt_is_answered_behind_an_aborted_turn_of_later_releases(dialect: Any) -> None:
    async with serving(dialect=dialect, release="later") as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        ada = DrivenTurn(transport, "hang", user="ada")
        await until(lambda: ada.text == "Well")
        bob = DrivenTurn(transport, "hello", user="bob")
        await until(lambda: sessions["s1"].queue)
        await ada.stop()
        assert (await bob.end())[-1] == p.Finish()
        assert bob.text == "You said: hello"


async def test_a_turn_that_somebody_asks_for_elsewhere_is_not_shown() -> None:
    async with serving() as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        ada = DrivenTurn(transport, "hang")
        await until(lambda: ada.text == "Well")
        sessions["s1"].publish({"type": "message.create", "turnId": "reminder"})
        sessions["s1"].publish({"type": "message.part.text-delta", "turnId": "reminder", "delta": "Stand up!"})
        marker = {"type": "agentStatus", "status": "streaming"}
        sessions["s1"].publish(marker)
        await until(lambda: p.Data("agent-status", {"status": "streaming"}, transient=True) in ada.parts)
        assert ada.text == "Well"
        await ada.stop()


async def test_a_turn_that_is_over_leaves_no_objects_behind() -> None:
    async with serving() as sessions:
        transport = AgentOpsChatTransport(sessions.url)

        async def take_turns(count: int) -> None:
            for number in range(count):
                turn = DrivenTurn(transport, f"hello {number}")
                await turn.end()
                assert turn.text == f"You said: hello {number}"
            await until(lambda: not sessions["s1"].clients)
            sessions["s1"].commands.clear()

        def objects() -> int:
            gc.collect()
            return len(gc.get_objects())

        await take_turns(100)
        before = objects()
        await take_turns(300)
        await until(lambda: objects() - before < 300)  # sockets may still be closing


@pytest.mark.parametrize(("dialect", "warnings"), [("bare", 1), ("runner", 0), ("client", 0)])
async def test_an_upstream_without_echoes_is_warned_of_once(
    dialect: Dialect, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(dialect=dialect) as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        for text in ("one", "two"):
            await DrivenTurn(transport, text).end()
    assert caplog.text.count("the upstream does not send prompts as user messages") == warnings


async def test_a_session_without_echoes_is_answered_beside_one_that_has_them() -> None:
    """Sessions of one upstream may run different releases, so what one of them sends says nothing about another."""
    async with serving(dialect="client") as sessions:
        transport = AgentOpsChatTransport(sessions.url)
        assert (await DrivenTurn(transport, "one").end())[-1] == p.Finish()
        sessions["s2"].dialect = "bare"
        ada = DrivenTurn(transport, "hang", session_id="s2")
        await until(lambda: ada.text == "Well")
        bob = DrivenTurn(transport, "hello", user="bob", session_id="s2")
        await DrivenTurn(transport, "two").end()
        assert [user for user, _command in sessions["s2"].commands] == ["ada"]
        await ada.stop()
        assert (await bob.end())[-1] == p.Finish()
        assert bob.text == "You said: hello"

"""How a turn is left: by its page, by silence, by a cut; and who must not notice."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from examples.agent_ops_session.server import Sessions, serving
from tests.agent_ops.talking import DrivenTurn, until
from usechat import parts as p
from usechat.agent_ops import AgentOpsChatTransport
from usechat.agent_ops import connection as client
from usechat.agent_ops.transport import SILENT


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with serving() as running:
        yield running


def kinds(sessions: Sessions, user: str) -> list[str]:
    return [command["type"] for author, command in sessions["s1"].commands if author == user]


@pytest.mark.parametrize("dialect", ["client", "runner"])
@pytest.mark.parametrize("query", [{}, {"channelId": "7"}])
async def test_a_page_that_goes_away_aborts_its_turn(dialect: Any, query: dict[str, str]) -> None:
    async with serving(dialect=dialect) as sessions:
        turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "slow", query=query)
        await until(lambda: "tick" in turn.text)
        await turn.stop()
        await until(lambda: not sessions["s1"].busy and not sessions["s1"].clients)
        scope = {"channelType": "web", "channelId": "7"} if query else {}
        assert sessions["s1"].commands[-1] == ("ada", {"type": "abort", **scope})
        assert turn.counted.connected == 0


@pytest.mark.parametrize("prompt", ["silent", "hang"])
async def test_a_page_that_goes_away_at_once_aborts_its_turn_as_soon_as_it_is_known(
    sessions: Sessions, prompt: str
) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), prompt)
    await until(lambda: sessions["s1"].busy)
    await turn.stop()
    await until(lambda: not sessions["s1"].busy)
    assert kinds(sessions, "ada") == ["prompt", "abort"]


async def bob_runs_and_ada_waits(sessions: Sessions) -> tuple[DrivenTurn, DrivenTurn]:
    """Return a turn that runs, and one that waits for it and has heard so."""
    transport = AgentOpsChatTransport(sessions.url)
    bob = DrivenTurn(transport, "slow", user="bob")
    await until(lambda: bob.text)
    ada = DrivenTurn(transport, "hello", user="ada")
    await until(lambda: sessions["s1"].queue)
    sessions["s1"].publish({"type": "marker"})
    await until(lambda: ada.counted.unknown == ["marker"])
    return bob, ada


async def test_a_prompt_in_the_queue_is_left_without_an_abort_and_others_go_on(sessions: Sessions) -> None:
    bob, ada = await bob_runs_and_ada_waits(sessions)
    await ada.stop()
    await until(lambda: len(sessions["s1"].clients) == 1)
    before = bob.text
    await until(lambda: bob.text > before)
    assert (kinds(sessions, "ada"), sessions["s1"].busy) == (["prompt"], True)
    await bob.stop()


async def test_a_prompt_in_the_single_slot_of_later_releases_is_withdrawn() -> None:
    async with serving(release="later") as sessions:
        bob, ada = await bob_runs_and_ada_waits(sessions)
        await ada.stop()
        await until(lambda: not sessions["s1"].queue)
        assert (kinds(sessions, "ada"), sessions["s1"].busy) == (["prompt", "queue.withdraw"], True)
        await bob.stop()


async def test_a_stop_while_the_socket_opens_asks_nothing(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "slow")
    await asyncio.sleep(0)
    await turn.stop()
    assert turn.task.cancelled()
    assert (sessions["s1"].busy, kinds(sessions, "ada")) == (False, [])


@pytest.mark.parametrize("prompt", ["silent", "hang"])
async def test_a_session_that_is_silent_for_too_long_is_aborted(
    sessions: Sessions, prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PING_INTERVAL", 0.02)  # answered, and no sign of life
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url, idle_timeout=0.3), prompt)
    assert await turn.failure() == f"PublicError: {SILENT}"
    await until(lambda: not sessions["s1"].busy)
    assert [kind for kind in kinds(sessions, "ada") if kind != "ping"] == ["prompt", "abort"]
    assert "ping" in kinds(sessions, "ada")


async def test_control_frames_are_no_sign_of_life() -> None:
    async def ping(connection: ServerConnection) -> None:
        while True:
            await connection.ping()
            await asyncio.sleep(0.02)

    async with serve(ping, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/{{id}}"
        assert (
            await DrivenTurn(AgentOpsChatTransport(url, idle_timeout=0.3), "hello").failure()
            == f"PublicError: {SILENT}"
        )


async def test_a_session_that_says_anything_is_not_silent(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url, idle_timeout=2), "hang")
    await until(lambda: turn.text)
    for number in range(15):
        sessions["s1"].publish({"type": "git-state", "data": {"commitCount": number}})
        await asyncio.sleep(0.2)
    assert not turn.task.done()
    await turn.stop()


async def test_no_limit_is_no_limit(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url, idle_timeout=None), "hang")
    await until(lambda: turn.text)
    await turn.stop()
    assert kinds(sessions, "ada") == ["prompt", "abort"]


async def test_tools_that_stay_open_behind_the_finish_are_settled_after_two_seconds(sessions: Sessions) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    parts = await DrivenTurn(AgentOpsChatTransport(sessions.url, idle_timeout=1.9), "stuck for ever").end()
    assert loop.time() - began >= 2
    assert parts[-2:] == [p.ToolError("turn-2-1", "The turn ended before this tool did."), p.Finish()]
    assert kinds(sessions, "ada") == ["prompt"]


async def test_a_socket_that_is_cut_in_the_middle_is_an_error(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "slow")
    await until(lambda: turn.text)
    sessions["s1"].cut_off()
    assert (await turn.end())[-1] == p.Error("Stream interrupted")


async def test_a_frame_that_is_too_large_aborts_the_turn(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url, maximum_frame_bytes=4000), "hang")
    await until(lambda: turn.text)
    sessions["s1"].publish({"type": "toast", "title": "x" * 5000})
    assert (await turn.end())[-1] == p.Error("Stream interrupted")
    await until(lambda: not sessions["s1"].busy)
    assert kinds(sessions, "ada") == ["prompt", "abort"]


async def test_more_sockets_than_a_session_may_have_are_refused(sessions: Sessions) -> None:
    transport = AgentOpsChatTransport(sessions.url, maximum_sockets=2)
    turns = [DrivenTurn(transport, "slow") for _ in range(2)]
    await until(lambda: turns[0].text or turns[1].text)
    assert transport.sockets.open_to("s1") == 2
    failure = "PublicError: Too many connections to this session; please try again later."
    assert await DrivenTurn(transport, "hello").failure() == failure
    await DrivenTurn(transport, "hello", session_id="s2").end()
    for turn in turns:
        await turn.stop()
    assert (transport.sockets.open_to("s1"), transport.sockets.open_to("s2")) == (0, 0)


async def test_somebody_else_aborts(sessions: Sessions) -> None:
    transport = AgentOpsChatTransport(sessions.url)
    bob = DrivenTurn(transport, "slow", user="bob")
    await until(lambda: bob.text)
    ada = DrivenTurn(transport, "hello", user="ada")
    await until(lambda: sessions["s1"].queue)
    await bob.stop()  # this upstream empties everybody's queue
    assert (await ada.end())[-1] == p.Error("The prompt was removed from the queue.")


async def test_turns_that_are_left_at_any_moment_leave_nothing_behind(sessions: Sessions) -> None:
    transport = AgentOpsChatTransport(sessions.url)
    chance = random.Random(7)
    turns = [DrivenTurn(transport, f"count {number}", user=f"user-{number}") for number in range(60)]

    async def leave(turn: DrivenTurn) -> None:
        await asyncio.sleep(chance.random() / 2)
        await turn.stop()

    await asyncio.gather(*map(leave, turns))
    await until(lambda: not sessions["s1"].clients)
    assert (transport.sockets.open_to("s1"), sum(turn.counted.connected for turn in turns)) == (0, 0)
    after = DrivenTurn(transport, "hello")
    assert (await after.end())[-1] == p.Finish()

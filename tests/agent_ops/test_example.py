"""The session server of the examples does what the upstream does."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from examples.agent_ops_demo import PATH, gateway_to, make_token
from examples.agent_ops_session.scripts import SCRIPTS
from examples.agent_ops_session.server import Sessions, serving
from usechat.agent_ops import SessionDirectory
from usechat.testing import AgentClient

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with serving() as running:
        yield running


def joined(sessions: Sessions, user: str = "ada") -> Any:
    return connect(sessions.url.format(id="s1"), additional_headers={"Authorization": f"Bearer {user}"})


async def say(client: ClientConnection, **command: Any) -> None:
    await client.send(json.dumps(command))


async def read(client: ClientConnection, until: str, **more: Any) -> list[Any]:
    """Return the frames up to the first of this type that has these data."""
    frames: list[Any] = []
    async with asyncio.timeout(30):
        while True:
            frames.append(json.loads(await client.recv()))
            if frames[-1]["type"] == until and more.items() <= frames[-1].get("data", {}).items():
                return frames


async def test_a_turn_as_browsers_get_it(sessions: Sessions) -> None:
    async with joined(sessions) as client:
        await say(client, type="prompt", content="tool")
        frames = await read(client, "status", runnerBusy=False)
    assert [frame["type"] for frame in frames] == [
        *("init", "message", "agentStatus", "message", "chunk", "chunk"),
        *("message.updated", "message.updated", "message.updated", "chunk", "chunk", "message.updated", "status"),
    ]
    parts = frames[-2]["data"]["parts"]
    assert [part["type"] for part in parts] == ["text", "tool-call", "text", "finish"]


async def test_a_turn_as_the_runner_tells_it() -> None:
    async with serving(dialect="runner") as sessions, joined(sessions) as client:
        await say(client, type="prompt", content="final")
        kinds = [frame["type"] for frame in await read(client, "complete")]
    assert kinds[-3:] == ["message.create", "message.finalize", "complete"]


async def test_prompts_wait_for_each_other_and_everybody_is_told(sessions: Sessions) -> None:
    async with joined(sessions) as ada, joined(sessions, "bob") as bob:
        await say(ada, type="prompt", content="hang")
        await read(ada, "chunk")
        await say(bob, type="prompt", content="hello")
        frames = await read(ada, "status", promptQueued=True)
        assert [frame["type"] for frame in frames] == ["user.joined", "message", "status"] or frames[-1]["data"] == {
            "promptQueued": True,
            "queuePosition": 1,
        }
        await say(ada, type="abort")
        stopped = await read(bob, "status", aborted=True)
        assert not [frame for frame in stopped if "queueCleared" in frame.get("data", {})]
        assert (await read(bob, "status"))[-1]["data"] == {"runnerBusy": False}, "the queue was emptied without a word"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"type": "prompt"}, "A prompt needs content or attachments."),
        ({"type": "answer", "questionId": "q"}, "No such question."),
        ({"type": "dance"}, "Unknown message type: dance"),
    ],
)
async def test_commands_that_are_refused(sessions: Sessions, command: dict[str, Any], message: str) -> None:
    async with joined(sessions) as client:
        await say(client, **command)
        assert (await read(client, "error"))[-1] == {"type": "error", "message": message}


async def test_whoever_comes_later_is_told_what_is_asked_and_said(sessions: Sessions) -> None:
    async with joined(sessions) as ada:
        await say(ada, type="prompt", content="ask")
        await read(ada, "question")
        async with joined(sessions, "bob") as bob:
            init, question = await read(bob, "question")
            assert (init["data"]["runnerBusy"], init["session"]["messages"][-1]["content"]) == (True, "One moment.")
            await say(bob, type="answer", questionId=question["questionId"], answer="yes")
            assert (await read(bob, "status", runnerBusy=False))[-3]["content"] == "You answered: yes"


async def token_of(directory: SessionDirectory) -> str:
    token = await make_token(directory)
    await directory.close()
    return token


def test_the_gateway_of_the_demo_answers_for_a_session(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/sessions.db"
    token = asyncio.run(token_of(SessionDirectory(address)))
    command = [sys.executable, "-m", "examples.agent_ops_session", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("Sessions: ").strip()
        try:
            directory = SessionDirectory(address)
            gateway = gateway_to(url, directory)
            path, headers = PATH.format(session_id="demo"), {"authorization": f"Bearer {token}"}
            with AgentClient(gateway, path=path, headers=headers, approve=True) as client:
                for prompt in ("tool", "ask"):
                    answer = client.ask(prompt)
                    answer.assert_legal()
                    answer.assert_redacted(token)
                    assert answer.error is None
                    assert answer.tools
                client.run(directory.close())
        finally:
            process.terminate()


def test_it_runs_by_itself() -> None:
    command = [sys.executable, "-m", "examples.agent_ops_session", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.terminate()
    assert lines[0].startswith("Sessions: ws://127.0.0.1:")
    assert lines[1] == f"Prompts that do something: {', '.join(SCRIPTS)}\n"

"""What the page about Agent Ops shows is so: its code runs, its sentences are the ones that people see."""

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import usechat.agent_ops
from examples.agent_ops_session.server import serving
from usechat.agent_ops.access.directory import DirectoryChanges
from usechat.agent_ops.access.roles import may_prompt
from usechat.agent_ops.adapter import INTERRUPTED, REMOVED, RUNNER_LOST, TOO_LATE, UNCLEAR, WITHDRAWN
from usechat.agent_ops.app import SESSION_SETTINGS, TOO_BUSY
from usechat.agent_ops.transport import NOTHING, SILENT, TOO_MANY, UNREACHABLE, AgentOpsChatTransport
from usechat.agent_ops.turn_parts import TOOL_FAILED, TURN_FAILED, UNSETTLED
from usechat.runs.run import CANNOT_FOLLOW, TOO_MUCH
from usechat.turn import Identity

SENTENCES = [INTERRUPTED, TOO_LATE, SILENT, TOOL_FAILED, TURN_FAILED, UNSETTLED, NOTHING, TOO_MANY, UNREACHABLE]
SENTENCES += [CANNOT_FOLLOW, TOO_MUCH, RUNNER_LOST, UNCLEAR, WITHDRAWN, REMOVED, TOO_BUSY]
LIMITS = {
    "idle_timeout": (120, "no frame for 120 s (`--idle-timeout`)"),
    "maximum_sockets": (256, "| 256 (`--max-sockets`, `maximum_sockets`) |"),
    "maximum_frame_bytes": (32 * 1024 * 1024, "| 32 MB (`maximum_frame_bytes`)"),
    "open_timeout": (10, "| 10 (`open_timeout`) |"),
}

PAGE = (Path(__file__).parents[2] / "docs" / "agent-ops-reference.md").read_text(encoding="utf-8")


def code() -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


def test_its_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code(), "docs/agent-ops-reference.md", "exec"), names)
    access = names["MyAccess"]()
    assert may_prompt(asyncio.run(access.role_of(Identity("bob"), "s1")))
    assert not may_prompt(asyncio.run(access.role_of(Identity("eve"), "s1")))


async def test_its_app_answers_who_is_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENABLE_AI_SDK_ADAPTER", raising=False)
    names: dict[str, Any] = {"__name__": "example"}
    async with serving() as sessions:
        address = "wss://agents.example.com/api/sessions/{id}/ws?role=client"
        assert code().count(address) == 1
        exec(compile(code().replace(address, sessions.url), "docs/agent-ops-reference.md", "exec"), names)
        changes = DirectoryChanges(names["directory"])
        await changes.migrate()
        await changes.add("s1", "alice", "interactive")
        await changes.switch("s1", enabled=True)
        token = await changes.new_token("alice")
        body = {"messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]}
        app = httpx2.ASGITransport(app=names["app"])
        async with names["lifespan"](names["app"]), httpx2.AsyncClient(transport=app, base_url="http://t") as client:
            answers = [
                await client.post("/api/sessions/s1/chat", json=body, headers={"Authorization": f"Bearer {each}"})
                for each in (token, "another")
            ]
    assert [answer.status_code for answer in answers] == [200, 401]
    assert '"delta":" hello"' in answers[0].text


@pytest.mark.parametrize("text", SENTENCES)
def test_its_sentences_are_those_of_the_code(text: str) -> None:
    assert text in PAGE


@pytest.mark.parametrize(("name", "limit", "row"), [(name, *limit) for name, limit in LIMITS.items()])
def test_its_limits_are_those_of_the_code(name: str, limit: int, row: str) -> None:
    assert inspect.signature(AgentOpsChatTransport).parameters[name].default == limit
    assert row in PAGE


def test_its_limits_of_the_route_are_those_of_the_code() -> None:
    assert SESSION_SETTINGS.maximum_waiting_bytes == 1024 * 1024
    assert "| bytes that wait for a slow page | 1 MB" in PAGE
    assert SESSION_SETTINGS.maximum_run_bytes == 64 * 1024 * 1024
    assert "| one answer | 64 MB (`settings.maximum_run_bytes`)" in PAGE


@pytest.mark.parametrize("missing", ["sqlalchemy", "alembic"])
def test_without_the_extra_the_command_says_how_to_get_it(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from usechat.cli import main; main(['sessions', 'list'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == f"usechat: {missing} is not installed; run: pip install 'usechat[agent-ops]'\n"


def test_the_public_names_are_there_and_explained() -> None:
    constants = [name for name in usechat.agent_ops.__all__ if name.isupper()]
    assert usechat.agent_ops.__all__ == constants + sorted(set(usechat.agent_ops.__all__) - set(constants))
    assert [name for name in usechat.agent_ops.__all__ if not getattr(usechat.agent_ops, name).__doc__] == []
    with pytest.raises(AttributeError, match=r"^module 'usechat\.agent_ops' has no attribute 'nothing'$"):
        _ = usechat.agent_ops.nothing

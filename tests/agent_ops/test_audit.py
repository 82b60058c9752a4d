"""The audit log: who prompted and who approved, before the session hears of it."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from examples.agent_ops_session.server import serving
from tests.agent_ops.talking import DrivenTurn
from tests.agent_ops.test_transport_questions import Page
from usechat.agent_ops import AgentOpsChatTransport, AuditLog
from usechat.agent_ops.transport import NOT_RECORDED
from usechat.errors import UnusableFile
from usechat.protocol.request import ChatRequest


def entries(path: Path) -> list[dict[str, Any]]:
    """Return the entries without their times."""
    log = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(entry.pop("time").endswith("+00:00") for entry in log)
    return log


async def test_a_prompt_is_recorded_with_its_author_and_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with serving() as sessions:
        transport = AgentOpsChatTransport(sessions.url, audit=AuditLog(path))
        await DrivenTurn(transport, "a secret").end()
        await DrivenTurn(transport, "another", user="bob", session_id="s2").end()
    assert entries(path) == [
        {"event": "prompt", "subject": "ada", "session": "s1", "chat": "c1", "message": "u1"},
        {"event": "prompt", "subject": "bob", "session": "s2", "chat": "c1", "message": "u1"},
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("approved", "event"), [(True, "approve"), (False, "deny")])
async def test_an_answer_to_a_question_is_recorded(tmp_path: Path, approved: bool, event: str) -> None:
    path = tmp_path / "audit.jsonl"
    async with serving() as sessions:
        transport = AgentOpsChatTransport(
            sessions.url, session_id="s1", service_token="ada", questions="approval", sdk="6", audit=AuditLog(path)
        )
        page = Page(transport)
        page.messages.append({"id": "u1", "role": "user", "parts": [{"type": "text", "text": "ask"}]})
        await page.send()
        question = page.part("dynamic-tool")
        question |= {"state": "approval-responded", "approval": {"id": "question-3", "approved": approved}}
        request = ChatRequest(chat_id="c", messages=page.messages)
        await DrivenTurn(transport, request=request, user="carl").end()
    [_, answer] = entries(path)
    about = {"session": "s1", "chat": "c", "approval": "question-3", "call": question["toolCallId"]}
    assert answer == {"event": event, "subject": "carl", **about}


async def test_what_cannot_be_recorded_is_not_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    path.parent.mkdir()
    audit = AuditLog(path)
    path.unlink()
    path.parent.rmdir()
    async with serving() as sessions:
        turn = DrivenTurn(AgentOpsChatTransport(sessions.url, audit=audit), "hello")
        assert await turn.failure() == f"PublicError: {NOT_RECORDED}"
        assert sessions.connections == 0
    assert "audit.jsonl cannot be written: No such file or directory" in caplog.text


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="cannot be written"):
        AuditLog(tmp_path / "missing" / "audit.jsonl")


def test_a_file_that_was_rotated_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.append("prompt", "ada", session="s1")
    path.rename(tmp_path / "audit.jsonl.1")
    log.append("prompt", "ada", session="s2", message=None)
    assert entries(path) == [{"event": "prompt", "subject": "ada", "session": "s2"}]

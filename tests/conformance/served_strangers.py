"""Serves the agents in `strangers/` of one environment by one command, and reads them with the npm clients."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import pytest

from tests.conformance.http_client import WITH_APPROVALS, Browser, Page, View
from tests.conformance.strangers_rows import FAILS, FILES, Said, Stranger
from usechat.testing import ModelAnswer, ScriptedModel

DIRECTORY: Final = Path(__file__).parent / "strangers"


class Model(ScriptedModel):
    """A model whose script is that of one agent at a time."""

    def play(self, answers: Sequence[Said]) -> None:
        """Begin another script."""
        self._answers = [ModelAnswer(text=each) if isinstance(each, str) else each for each in answers]
        self.requests.clear()
        self.refusals.clear()

    @property
    def is_over(self) -> bool:
        """Whether every answer was asked for."""
        return not self._answers


class Server(NamedTuple):
    """A server of all agents of an environment."""

    url: str
    model: Model


def rows_of(environment: str) -> list[Any]:
    """Return the agents of an environment, each with the name by which the server knows it."""
    return [
        pytest.param(row, _name_of(environment, file, row), id=f"{file}-{row.name}")
        for file, rows in FILES[environment].items()
        for row in rows
    ]


def _targets(environment: str) -> list[str]:
    files = FILES[environment].items()
    return list(dict.fromkeys(f"{file}.py:{row.name}" for file, rows in files for row in rows))


def _name_of(environment: str, file: str, row: Stranger) -> str:
    """Return what the command calls an agent: the name of its object, or all of the target if two have one name."""
    names = [target.rpartition(":")[2] for target in _targets(environment)]
    return row.name if names.count(row.name) == 1 else f"{file}.py:{row.name}"


@contextmanager
def serving(environment: str, directory: Path) -> Iterator[Server]:
    """Yield a server of all agents of an environment, whose working directory is theirs."""
    usechat = str(Path(sys.executable).with_name("usechat"))
    command = [usechat, "serve", *_targets(environment), "--port", "0", "--no-page"]
    with Model([]) as model:
        variables = {
            "PYTHONUNBUFFERED": "1",
            "OPENAI_BASE_URL": model.openai_url,
            "OPENAI_API_BASE": model.openai_url,
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_BASE_URL": model.anthropic_url,
            "ANTHROPIC_API_KEY": "none",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "CREWAI_TESTING": "true",
            "CREWAI_STORAGE_DIR": str(directory),
        }
        with subprocess.Popen(command, cwd=DIRECTORY, env=os.environ | variables, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                lines = (line.decode() for line in process.stdout)
                addresses = (each for line in lines for each in re.findall(r"http://[\d.]+:\d+", line))
                url = f"{next(addresses)}/api/chat"
                Thread(target=process.stdout.read, daemon=True).start()  # a full pipe would stop what prints
                yield Server(url, model)
            finally:
                process.terminate()


def check(row: Stranger, name: str, server: Server, browser: Browser) -> None:
    """Say what the row says, and compare what the page shows."""
    server.model.play(row.model)
    release = WITH_APPROVALS[row.release % len(WITH_APPROVALS)]
    automatic = ["approvals"] if row.output is None else ["approvals", "tools"]
    page = browser.open(release, server.url, chat_id=f"{name}-{id(row)}", automatic=automatic)
    for text, expected in row.turns:
        page.call("sendMessage", {"text": text}, {"body": {"agent": name}})
        view = _answered(page, row)
        if expected == FAILS:
            assert view["status"] == "error", view
            assert "hunter2" not in str(view), view
        else:
            last = shown(view["messages"][-1])
            is_expected = last == expected if row.in_order else sorted(map(str, last)) == sorted(map(str, expected))
            assert (view["error"], is_expected) == (None, True), (view["error"], last)
    assert (server.model.refusals, server.model.is_over) == ([], True), server.model.requests[-1]
    if row.requests:
        counts = [len(request["messages"]) for request in server.model.requests]
        assert counts == row.requests, counts


def _answered(page: Page, row: Stranger) -> View:
    """Approve and answer what the page is asked, until the turn is over."""
    while waiting := _waiting(view := page.settled()):
        if waiting["state"] == "approval-requested":
            approval_id = waiting["approval"]["id"]
            body = {} if row.edited is None else {"editedInputs": {approval_id: row.edited}}
            page.call("addToolApprovalResponse", {"id": approval_id, "approved": True, "options": {"body": body}})
        else:
            tool = waiting["type"].removeprefix("tool-")
            page.call("addToolOutput", {"tool": tool, "toolCallId": waiting["toolCallId"], "output": row.output})
        page.until(lambda view, waiting=waiting: _waiting(view) != waiting)  # type: ignore[misc]
    return view


def _waiting(view: View) -> Any:
    """Return the call of the last message that waits for the page, if there is one."""
    states = ("approval-requested", "input-available")
    message = view["messages"][-1]
    if message["role"] != "assistant" or view["status"] != "ready":
        return None
    return next((part for part in message["parts"] if part.get("state") in states), None)


def shown(message: Any) -> list[object]:
    """Return the texts, outputs, failures and data of a message; agents are named in brackets."""
    return [_shown(part) for part in message["parts"] if part["type"] not in ("step-start", "reasoning")]


def _shown(part: Any) -> object:
    kind = part["type"]
    if kind == "text":
        return part["text"]
    if kind == "data-agent":
        return f"[{part['data']['name']}]"
    if kind == "data-interrupt":
        return part["data"]["value"]
    if kind.startswith("data-"):
        return part["data"]
    if kind == "source-document":
        return {"file_name": part["title"]}
    return part.get("errorText", part.get("output"))

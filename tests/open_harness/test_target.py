"""`usechat serve` with a flow file, and in front of flows that run elsewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from tests.cli.common_options import COMMON
from tests.server.process import question, serve_process
from usechat import ChunkDecoder, MessageBuilder
from usechat.cli import main
from usechat.cli.plan import Plan, make_app
from usechat.errors import UsechatError
from usechat.open_harness.errors import InvalidFlow
from usechat.open_harness.remote.flows import RemoteRuntime
from usechat.open_harness.remote.sessions import RemoteSessions
from usechat.open_harness.target import OpenHarnessOptions, OpenHarnessTarget
from usechat.targets import TargetAgent

FLOW = """\
name: greeting
nodes:
  - id: greeter
    type: python
    input:
      function: greetings:greet
      name: "{{ flow.input.message }}"
edges: []
"""
FUNCTIONS = """\
async def greet(given):
    yield "Hello, "
    yield given["name"]
"""
INVALID = """\
name: broken
nodes:
  - id: a
    type: nonsense
    input: {}
  - id: b
    type: echo
    input: {text: "{{ ( }}"}
edges:
  - from: a
    to: c
"""
SERVER = """\
from usechat.open_harness import FlowRuntime, load_flow, serve_runtime

flow = load_flow("flow.yaml")
serve_runtime(lambda: FlowRuntime(flow), port=0)
"""


def open_target(target: str, **options: str) -> TargetAgent:
    return OpenHarnessTarget().open(target, OpenHarnessOptions(**options), COMMON)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW, encoding="utf-8")
    (tmp_path / "greetings.py").write_text(FUNCTIONS, encoding="utf-8")
    (tmp_path / "invalid.yaml").write_text(INVALID, encoding="utf-8")
    (tmp_path / "flows.py").write_text(SERVER, encoding="utf-8")
    return tmp_path


@contextmanager
def flow_server(folder: Path) -> Iterator[str]:
    """Run a program that serves flows; tell its address."""
    command = [sys.executable, "flows.py"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.fullmatch(r"usechat serves flows at (ws://127.0.0.1:\d+/ws)\n", process.stdout.readline())
            assert match
            yield match[1]
        finally:
            process.terminate()


async def test_pages_of_other_sites_may_not_reach_flows_of_this_machine(folder: Path) -> None:
    with flow_server(folder) as address:
        with pytest.raises(InvalidStatus, match="403"):
            await connect(address, origin=Origin("http://evil.example"))
        with pytest.raises(InvalidStatus, match="403"):  # a name of theirs that leads to this machine
            await connect("ws://evil.example/ws", host="127.0.0.1", port=urlsplit(address).port)


def ask(url: str, text: str) -> Any:
    """Return the message that answers a text."""
    response = httpx2.post(f"{url}/api/chat", json=question(text), timeout=60)
    assert response.status_code == 200
    builder = MessageBuilder(sdk="7")
    for chunk in ChunkDecoder().receive(response.content):
        builder.receive(chunk)
    return builder.message


def text_of(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def kinds_of(message: Any) -> set[str]:
    return {part["type"] for part in message["parts"]}


def test_a_flow_file_is_served_and_its_page_can_draw_it(folder: Path) -> None:
    with serve_process(folder, "flow.yaml") as served:
        message = ask(served.url, "Ann")
    assert text_of(message) == "Hello, Ann"
    assert {"data-flow-graph", "data-flow-status", "data-node-status"} <= kinds_of(message)


def test_a_server_of_ours_is_fronted_at_its_address(folder: Path) -> None:
    with (
        flow_server(folder) as address,
        serve_process(folder, "--as", "open-harness", address) as front,
    ):
        message = ask(front.url, "Ann")
    assert text_of(message) == "Hello, Ann"
    assert "data-node-status" in kinds_of(message)


def test_every_problem_of_a_file_is_printed_in_one_report_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(folder / "invalid.yaml")]) == 2
    report = capsys.readouterr().err.splitlines()
    assert report[0] == f"usechat: {folder / 'invalid.yaml'}: {len(report) - 1} problems"
    assert [line.split(":")[0] for line in report[1:]] == ["  line 4", "  line 8", "  line 11"]


MODELS = """\
name: models
nodes:
  - {id: a, type: claude.agent, input: {prompt: hi}}
  - {id: b, type: agent, input: {model: "nonsense:x", prompt: hi}}
  - {id: c, type: agent, input: {model: "python:greetings:nobody", prompt: hi}}
  - {id: d, type: agent, input: {model: test, prompt: hi}}
  - {id: e, type: agent, input: {model: "{{ flow.input.model }}", prompt: hi}}
edges: []
"""


def test_models_that_cannot_be_asked_are_told_before_anything_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (folder / "models.yaml").write_text(MODELS, encoding="utf-8")
    with pytest.raises(InvalidFlow) as raised:
        open_target(str(folder / "models.yaml"))
    claude, unknown, nobody = map(str, raised.value.problems)
    assert re.match(r'node "a", model: (Please install the `anthropic` package|Set the `ANTHROPIC_API_KEY`)', claude)
    assert unknown == 'node "b", model: Unknown model: nonsense:x'
    assert nobody == """node "c", model: module 'greetings' has no attribute 'nobody'"""


MAPPED = """\
name: mapped
nodes: [{id: a, type: shout, input: {text: "{{ flow.input.topic }} at {{ flow.input.depth }}"}}]
edges: []
"""
REGISTRY = """\
from usechat.open_harness import default_registry

async def shout(given):
    yield given["text"].upper()

registry = default_registry()
registry.add("shout", shout)
"""


def test_input_and_types_of_nodes_come_from_the_command_line(folder: Path) -> None:
    (folder / "mapped.yaml").write_text(MAPPED, encoding="utf-8")
    (folder / "my_nodes.py").write_text(REGISTRY, encoding="utf-8")
    options = ["--input", "topic=text,depth=body.depth", "--registry", "my_nodes:registry"]
    with serve_process(folder, "mapped.yaml", *options) as process:
        response = httpx2.post(f"{process.url}/api/chat", json={**question("bees"), "depth": 3}, timeout=60)
    assert "BEES AT 3" in response.text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input": "topic"}, "maps nothing"),
        ({"input": "message=text"}, "'message' always comes from the chat"),
        ({"registry": "greetings:greet"}, "greetings:greet is not a NodeRegistry"),
        ({"registry": "greetings:nobody"}, "greetings has no 'nobody'"),
    ],
)
def test_options_that_cannot_be_are_told_before_anything_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], problem: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UsechatError, match=problem):
        open_target("flow.yaml", **options)


def test_a_store_of_runs_comes_from_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    open_target("flow.yaml", run_store="runs.db")
    assert Path("runs.db").is_file()
    with pytest.raises(UsechatError, match=r"--run-store: missing/runs\.db cannot be used as an SQLite file"):
        open_target("flow.yaml", run_store="missing/runs.db")
    with pytest.raises(
        UsechatError, match="--run-store takes the name of an SQLite file, or a URL such as postgresql:"
    ):
        open_target("flow.yaml", run_store="mysql://host/runs")
    with pytest.raises(UsechatError, match="--run-store is for flow files"):
        open_target("ws://localhost/ws", run_store="runs.db")


def test_a_database_of_runs_that_cannot_be_reached_is_told_before_anything_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["serve", "flow.yaml", "--port", "0", "--run-store", "postgresql://user@127.0.0.1:1/runs"]) == 2
    output = capfd.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "--run-store: the run database cannot be used: ConnectionRefusedError: " in output.err


def test_a_registry_is_of_no_use_to_flows_that_run_elsewhere() -> None:
    with pytest.raises(UsechatError, match="--registry is for flow files"):
        open_target("ws://localhost/ws", registry="greetings:greet")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("missing.yaml", "there is no flow file missing.yaml"),
        ("my_app:agent", "there is no flow file my_app:agent"),
        ("ftp://example.org", "no flow can be reached at ftp://"),
        ("ws://", "begins with ws://"),
        ("https://", "begins with http://"),
    ],
)
def test_a_target_that_cannot_be_one_is_told_before_anything_is_served(target: str, problem: str) -> None:
    with pytest.raises(UsechatError, match=problem):
        make_app(Plan(target=target, kind="open-harness"))


@pytest.mark.parametrize("target", ["ws://localhost:42069/ws", "wss://example.org/ws", "http://127.0.0.1:42069"])
def test_an_address_is_not_looked_at_before_somebody_asks(target: str) -> None:
    assert make_app(Plan(target=target, kind="open-harness")).built_here


def test_what_is_made_of_an_address_depends_on_its_scheme() -> None:
    program = (
        "import sys; from usechat.cli.plan import Plan, make_app;"
        "make_app(Plan(target='ws://localhost/ws', kind='open-harness'));"
        "print('jsonata' in sys.modules, 'yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert open_target("http://localhost").agent is not None
    assert (RemoteRuntime.ends_at, RemoteSessions("http://localhost")().ends_at) == ("flow", "flow")

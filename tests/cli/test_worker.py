"""`usechat worker`, and `usechat serve --agents external`: what they refuse, and how they work together."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx2
import pytest

from scripts.generate_docs import ROOT
from tests.redis_server import SERVERS, free_port, redis_server
from tests.server.metrics_page import parse_samples
from tests.server.process import PATIENCE, eventually, question, serve_process
from usechat import ChunkDecoder, MessageBuilder
from usechat.cli import main
from usechat.cli.plan import Plan, code_version, make_worker
from usechat.errors import CannotServe
from usechat.server.app import EndpointsApp
from usechat.server.requests import Authorize, allow_all
from usechat.targets import CommonOptions, NoOptions, OptionGroup, ServedApp, load_object

REDIS = ["--redis", "redis://127.0.0.1:1"]
EXTERNAL = [*REDIS, "--agents", "external"]


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "a:b", "--agents", "external"], "--agents external needs --redis URL"),
        (["serve", "a:b", *EXTERNAL, "--as", "genkit"], "nothing is imported here: give --as to usechat worker"),
        (["serve", "a:b", *EXTERNAL, "--reload"], "nothing is imported here: give --reload to usechat worker"),
        (["serve", "a:b", *REDIS, "--max-waiting", "3"], "--max-waiting is for --agents external"),
        (["serve", "a:b", "--forward-header", "x-tenant"], "--forward-header is for --agents external"),
        (["serve", "a:b", *EXTERNAL, "--forward-header", "x y"], "'x y' is not the name of a header"),
        (["serve", "a:b", *EXTERNAL, "--max-waiting", "0"], "'0' is not a whole number above 0"),
        (["worker", "a:b"], "the following arguments are required: --redis"),
        (["worker", "no_such_module:b", *REDIS], "there is no module 'no_such_module'"),
        (["worker", f"{ROOT}/examples/chat_app.py:app", *REDIS], "is an ASGI app, not an agent"),
        (["worker", f"{ROOT}/examples/worker_agent.py:agent", "--redis", "nonsense"], "--redis takes a URL"),
        (["worker", "a:b", *REDIS, "--host", "256.0.0.1", "--metrics-port", "80"], "port 80 of 256.0.0.1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(str(exit_.code))
    assert code == 2
    assert sentence in capsys.readouterr().err


class AppTarget:
    """A kind of another package, with its own routes."""

    summary = "an app"
    options = NoOptions

    def recognises(self, target: str) -> bool:
        return target == "app"

    def add_options(self, group: OptionGroup) -> None:
        pass

    def open(self, target: str, options: NoOptions, common: CommonOptions) -> ServedApp:  # noqa: ARG002
        return ServedApp(cast("EndpointsApp", object()), "/chat", cast("Authorize", allow_all))


async def test_a_kind_with_routes_of_its_own_has_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usechat.cli.plan.installed_targets", lambda: {"app": AppTarget()})
    with pytest.raises(CannotServe, match="has its own routes"):
        make_worker(Plan(target="app", kind="app", redis=REDIS[1]))


def test_the_version_of_the_code_is_that_of_its_files(tmp_path: Path) -> None:
    file = tmp_path / "versioned_agent.py"
    target = f"{file}:agent"
    file.write_text("def agent(turn): return 'one'\n")
    load_object(target)
    first = code_version(target)
    assert code_version(target) == first
    assert re.fullmatch("[0-9a-f]{12}", first)
    file.write_text("def agent(turn): return 'two'\n")
    assert code_version(target) != first


def test_the_version_of_a_flow_is_that_of_its_file(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text("one")
    first = code_version(str(flow))
    flow.write_text("two")
    assert code_version(str(flow)) != first


@contextmanager
def worker_process(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", "worker"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def text_of(body: bytes) -> str:
    builder = MessageBuilder()
    for chunk in ChunkDecoder().receive(body):
        builder.receive(chunk)
    return "".join(part["text"] for part in builder.message["parts"] if part["type"] == "text")  # type: ignore[typeddict-item]


def test_the_example_answers_in_a_process_of_its_own(tmp_path: Path) -> None:
    target = "examples/worker_agent.py:agent"
    log, port = tmp_path / "worker.txt", free_port()
    with (
        redis_server(next(iter(SERVERS))) as redis,
        worker_process(log, target, "--redis", redis.url, "--metrics-port", str(port)) as worker,
        # In another directory: the web process has no such file.
        serve_process(tmp_path, target, "--redis", redis.url, "--agents", "external") as served,
    ):
        assert "usechat worker examples/worker_agent.py:agent --redis URL" in served.written
        answer = httpx2.post(f"{served.url}/api/chat", json=question("deploys"), timeout=PATIENCE)
        assert text_of(answer.content) == f"Process {worker.pid} thinks about 'deploys'. 1 2 3 4 5 6 7 8 9 10 Done."
        counted = 'adapter_request_count_total{outcome="finished",status="200"}'
        page = f"http://127.0.0.1:{port}/metrics"
        eventually(lambda: parse_samples(httpx2.get(page).text)[counted] == 1, "the worker has counted the answer")
        waiting = "adapter_turns_waiting 0.0"
        eventually(lambda: waiting in httpx2.get(f"{served.url}/metrics").text, "no turn waits any more")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    assert "up to 50 at once" in log.read_text()


def test_a_task_of_an_agent_that_exits_does_not_end_its_process(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(
        "import asyncio\nimport sys\nasync def leave():\n    sys.exit(3)\n"
        "async def agent(turn):\n    if turn.text == 'leave':\n"
        "        await asyncio.gather(leave(), asyncio.sleep(60))\n"
        "    yield 'still here'\n"
    )
    target, log = f"{tmp_path}/exits.py:agent", tmp_path / "worker.txt"
    with (
        redis_server(next(iter(SERVERS))) as redis,
        worker_process(log, target, "--redis", redis.url) as worker,
        serve_process(tmp_path, target, "--redis", redis.url, "--agents", "external") as served,
    ):
        failed = httpx2.post(f"{served.url}/api/chat", json=question("leave", chat_id="c1"), timeout=PATIENCE)
        assert "An error occurred. Reference: " in failed.text
        answer = httpx2.post(f"{served.url}/api/chat", json=question("stay", chat_id="c2"), timeout=PATIENCE)
        assert text_of(answer.content) == "still here"
        assert worker.poll() is None


def test_a_second_signal_stops_the_answers(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import asyncio\nasync def agent(turn):\n    yield 'begun'\n    await asyncio.sleep(3600)\n"
    )
    target, log = f"{tmp_path}/slow.py:agent", tmp_path / "worker.txt"
    with (
        redis_server(next(iter(SERVERS))) as redis,
        worker_process(log, target, "--redis", redis.url, "--drain", "3600") as worker,
        serve_process(tmp_path, target, "--redis", redis.url, "--agents", "external") as served,
        httpx2.stream("POST", f"{served.url}/api/chat", json=question(), timeout=PATIENCE) as answer,
    ):
        pieces = answer.iter_bytes()
        data = b""
        while b"begun" not in data:
            data += next(pieces)
        worker.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        assert worker.poll() is None, "it waits for its answer"
        worker.send_signal(signal.SIGTERM)
        assert b'"type":"abort"' in b"".join(pieces)
        assert worker.wait(PATIENCE) == 0

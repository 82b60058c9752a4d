"""The code of `docs/temporal.md` and of the example is run."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client
from temporalio.worker import Worker

from tests.temporal.pages import Page
from tests.temporal.server import TemporalServer
from usechat.server import ChatApp, Settings
from usechat.temporal import worker_plugin

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "temporal.md"
EXAMPLE = ROOT / "examples" / "temporal_chat.py"


def code_of(blocks: int) -> str:
    """The first Python blocks of the guide."""
    return "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[:blocks])


async def test_the_page_holds_code_that_runs(
    server: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a module: Temporal's sandbox imports the module of a workflow."""
    (tmp_path / "temporal_guide.py").write_text(code_of(1), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import temporal_guide  # type: ignore[import-not-found]

    client = await server.client()
    async with temporal_guide.worker(client):
        page = Page(ChatApp(temporal_guide.agent(client), settings=Settings(sdk="7"), metrics=False), "guide")
        assert (await page.ask("hi")).texts == ["You said: hi"]


async def test_a_worker_takes_the_agent_of_the_page(
    server: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its model needs a key. A worker refuses a workflow that its sandbox cannot load."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "temporal_assistant.py").write_text(code_of(2), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import temporal_assistant  # type: ignore[import-not-found]

    client = await Client.connect(server.address, plugins=[PydanticAIPlugin()])
    workflows = [temporal_assistant.Assistant]
    async with Worker(client, task_queue="assistant", workflows=workflows, plugins=[worker_plugin()]) as worker:
        assert worker.config(active_config=True)["activities"], "the plugin finds those of the agent"


@contextmanager
def running(program: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(program)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_the_example_answers(server: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = tmp_path / "temporal_chat.py"
    example.write_text(EXAMPLE.read_text(encoding="utf-8").replace("127.0.0.1:7233", server.address), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import temporal_chat  # type: ignore[import-not-found]

    with running(example):
        page = Page(ChatApp(temporal_chat.agent, settings=Settings(sdk="7"), metrics=False), "example")
        assert (await page.ask("hi")).texts == ["You said: hi "]

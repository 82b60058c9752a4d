"""The app of a plan in its process: made once, with the garbage collector tuned as an app elsewhere never does."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from usechat.cli.plan import Plan, create_app, hand_to_workers, make_app
from usechat.server import ChatApp
from usechat.testing import AgentClient


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def test_a_process_of_usechat_serve_collects_rarely_and_nothing_of_what_it_started_with(tmp_path: Path) -> None:
    module = tmp_path / "greeter.py"
    module.write_text("def agent(turn):\n    return 'Hello'\n")
    hand_to_workers(Plan(target=f"{module}:agent"))
    create_app()
    assert gc.get_threshold() == (20_000, 10, 10)
    assert gc.get_freeze_count() > 0


def test_an_app_in_another_process_leaves_the_collector_alone() -> None:
    before = gc.get_threshold()

    def agent(_turn: object) -> str:
        return f"{gc.get_threshold()} {gc.get_freeze_count()}"

    with AgentClient(ChatApp(agent)) as client:
        assert client.ask("Hello").text == f"{before} 0"


async def test_the_command_serves_the_app_that_it_has_made() -> None:
    """A process that uvicorn starts has none, and makes its own."""
    plan = Plan(target="tests.browser.agent:answer", page=False)
    served = make_app(plan)
    hand_to_workers(plan, served)
    assert create_app() is served.app
    hand_to_workers(plan)
    assert create_app() is not served.app

"""A framework that usechat does not know, with its own adapter: installed, served, asked by the real clients.

The framework, its adapter and the app are those of docs/adapters.md, built into a wheel.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import adapter_page
from tests.conformance.http_client import NEWEST, Browser


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("chirp")
    site = adapter_page.install(directory)
    app = directory / "app"
    app.mkdir()
    (app / "my_app.py").write_text(adapter_page.files()["my_app.py"], encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    command = [str(Path(sys.executable).with_name("usechat")), "serve", "my_app:agent", "--port", "0", "--no-page"]
    environment = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=app, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(_addresses(process.stdout))
        finally:
            process.terminate()


def _addresses(lines: Iterable[str]) -> Iterator[str]:
    """Yield the addresses that a server prints when it has started."""
    for line in lines:
        for address in re.findall(r"http://127\.0\.0\.1:\d+", line):
            yield f"{address}/api/chat"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.mark.parametrize("release", NEWEST)
def test_its_agent_answers_the_real_clients(url: str, browser: Browser, release: str) -> None:
    page = browser.open(release, url, chat_id=f"chirp-{release}")
    page.send("Paris")
    content = [
        (part["type"], part.get("text") or part.get("output"))
        for part in page.answer()["parts"]
        if part["type"] != "step-start"
    ]
    assert content == [
        ("reasoning", "I need the weather."),
        ("tool-weather", {"celsius": 21}),
        ("text", "It is 21 °C in Paris."),
    ]

"""The lines that `usechat serve` prints when its server is up."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import eventually, serve_process
from usechat.cli.announcement import Announcement, announced

PROGRAM = "import sys; from usechat.cli import main; sys.exit(main())"


async def complete(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "lifespan.startup.complete"})


async def fail(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "lifespan.startup.failed", "message": "no key"})


async def know_no_lifespan(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("http only")


def announcement_in(directory: Path) -> Announcement:
    marker = directory / "marker"
    marker.touch()
    return Announcement("It is up.\n", str(marker))


async def start(app: Any) -> list[Any]:
    """Start an app as a server does, and return what it sends."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    try:
        await app({"type": "lifespan"}, None, send)
    except AssertionError:
        messages.append("raised")
    return messages


@pytest.mark.parametrize(
    ("app", "sent", "printed"),
    [
        (complete, [{"type": "lifespan.startup.complete"}], "It is up.\n"),
        (fail, [{"type": "lifespan.startup.failed", "message": "no key"}], ""),
        (know_no_lifespan, ["raised"], "It is up.\n"),  # servers then serve it without a lifespan
    ],
)
async def test_it_is_printed_when_the_app_has_started(
    app: Callable[..., Any], sent: list[Any], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announcement = announcement_in(tmp_path)
    assert await start(announced(app, announcement)) == sent
    assert capsys.readouterr().out == printed


async def test_only_the_first_worker_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    announcement = announcement_in(tmp_path)
    for _ in range(3):
        await start(announced(complete, announcement))
    assert capsys.readouterr().out == "It is up.\n"


@pytest.mark.parametrize("options", [[], ["--reload"]], ids=["one process", "reload"])
def test_a_factory_that_fails_at_the_start_is_not_announced(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "my_app.py").write_text("def make_agent():\n    raise ValueError('There is no key.')\n")
    command = [sys.executable, "-c", PROGRAM, "serve", "my_app:make_agent", "--port", "0", *options]
    log = tmp_path / "output.txt"
    with log.open("wb") as output, subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output) as process:
        eventually(lambda: "Application startup failed" in log.read_text(), "the failure is told")
        process.terminate()
    assert "usechat serves" not in log.read_text()


@pytest.mark.parametrize("options", [[], ["--reload"]], ids=["one process", "reload"])
def test_a_server_that_is_up_is_announced_once(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "my_app.py").write_text("def agent(turn):\n    return 'Hello'\n")
    with serve_process(tmp_path, "my_app:agent", *options) as served:
        assert served.written.count("usechat serves my_app:agent at") == served.written.count("Try it:") == 1

"""Debian's WebKitGTK in its small browser, driven by WebDriver (commands over HTTP), on a screen in memory."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.browsers.driver import STAGE, Actions, OpenDriver
from tests.conformance.served import PATIENCE, eventually, unanswered_port
from tests.deploy.programs import program

_ON_THE_PROCESSOR: Final = {
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "WEBKIT_DISABLE_COMPOSITING_MODE": "1",
    "WEBKIT_DISABLE_DMABUF_RENDERER": "1",
    "WEBKIT_SKIA_ENABLE_CPU_RENDERING": "1",
}
_SMALL: Final = "* { min-width: 0; padding: 0; }"
"""The look of the browser's toolbar: otherwise a window is 447 pixels wide at least."""

_FRAME: Final = "() => [...document.body.children].find((each) => each.shadowRoot).shadowRoot.querySelector('iframe')"


class WebKitTab:
    """A window of WebKit: a session of WebDriver."""

    def __init__(self, client: httpx2.Client, session: str) -> None:
        self._client = client
        self._session = session
        self._corner = (0, 0)

    def navigate(self, url: str) -> None:
        self._post("url", {"url": url})

    def reload(self) -> None:
        self._post("refresh", {})

    def enter_frame(self) -> None:
        self._corner = self.evaluate(
            f"() => {{ const {{ x, y }} = ({_FRAME})().getBoundingClientRect(); return [x, y]; }}"
        )
        self._post("frame", {"id": self.evaluate(_FRAME)})

    def resize(self, width: int, height: int) -> None:
        toolbar = self.evaluate("() => outerHeight - innerHeight")
        self._post("window/rect", {"x": 0, "y": 0, "width": width, "height": height + toolbar})
        eventually(
            lambda: self.evaluate("() => [innerWidth, innerHeight]") == [width, height], "the window has its size"
        )

    def evaluate(self, function: str, *arguments: Any) -> Any:
        return self._post("execute/sync", {"script": f"return ({function})(...arguments)", "args": arguments})

    def perform(self, actions: Actions) -> None:
        self._post(
            "actions", {"actions": [{**each, "actions": [*map(self._placed, each["actions"])]} for each in actions]}
        )

    def _placed(self, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the place of the frame: WebKit counts from the corner of the window."""
        x, y = self._corner
        return {**action, "x": action["x"] + x, "y": action["y"] + y} if "x" in action else action

    def _post(self, command: str, body: Any) -> Any:
        return _value(self._client.post(f"/session/{self._session}/{command}", json=body))


@contextmanager
def running_webkit(directory: Path) -> Iterator[OpenDriver]:
    """Run WebKit's driver, with the files of its browsers in a directory, until the block ends."""
    path = program("WebKitWebDriver", STAGE)
    style = directory / ".config" / "gtk-3.0" / "gtk.css"
    style.parent.mkdir(parents=True)
    style.write_text(_SMALL)
    with unanswered_port() as port:
        pass
    with _screen() as display:
        environment = os.environ | _ON_THE_PROCESSOR | {"DISPLAY": display, "HOME": str(directory)}
        process = subprocess.Popen([path, f"--port={port}"], env=environment, stderr=subprocess.DEVNULL)
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                eventually(lambda: _listens(client), "WebKit's driver listens")
                yield partial(_opened, client, process)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _listens(client: httpx2.Client) -> bool:
    try:
        return client.get("/status").is_success
    except httpx2.TransportError:
        return False


@contextmanager
def _opened(client: httpx2.Client, driver: "subprocess.Popen[bytes]") -> Iterator[WebKitTab]:
    session = _value(client.post("/session", json={"capabilities": {}}))["sessionId"]
    try:
        yield WebKitTab(client, session)
    finally:
        _kill_browser(driver)  # it would close when a page is drawn, and one of a long chat is drawn for long
        _value(client.delete(f"/session/{session}"))


def _kill_browser(driver: "subprocess.Popen[bytes]") -> None:
    """End the browser of the only session of a driver."""
    for children in Path(f"/proc/{driver.pid}/task").glob("*/children"):
        for process in children.read_text().split():
            os.kill(int(process), signal.SIGKILL)


@contextmanager
def _screen() -> Iterator[str]:
    """Show windows nowhere, until the block ends; return the name of the display."""
    reading, writing = os.pipe()
    options = ("-displayfd", str(writing), "-screen", "0", "1600x1200x24", "-nolisten", "tcp")
    process = subprocess.Popen([program("Xvfb", STAGE), *options], pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with os.fdopen(reading) as name:
            yield f":{name.readline().strip()}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _value(response: httpx2.Response) -> Any:
    assert response.is_success, response.text
    return response.json()["value"]

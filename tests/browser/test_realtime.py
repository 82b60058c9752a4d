"""The page of `docs/recipes.md` that talks by voice: the real hook and the real model, the route of the example."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from examples import realtime_token
from tests.browser.building import EXAMPLES, HERE, build, install
from tests.browser.chatting import expect
from tests.conformance.served import eventually, serving

PACKAGES = HERE / "realtime"
DOCS = EXAMPLES.parent / "docs" / "recipes.md"
MICROPHONE = """
navigator.mediaDevices.getUserMedia = async () => {
  const audio = new AudioContext();
  const output = audio.createMediaStreamDestination();
  const tone = new OscillatorNode(audio);
  tone.connect(output);
  tone.start();
  return output.stream;
};
"""
"""A device that hums: the machine of a test has none."""


class Provider:
    """The routes of OpenAI that such a page needs: they mint a token, and hear what the page says with it."""

    def __init__(self) -> None:
        self.protocols: list[str] = []
        self.query = ""
        self.events: list[dict[str, Any]] = []
        self.has_left = False
        routes = [
            Route("/realtime/client_secrets", self.mint, methods=["POST"]),
            WebSocketRoute("/realtime", self.talk),
        ]
        self.app = Starlette(routes=routes)

    async def mint(self, _request: Request) -> JSONResponse:
        return JSONResponse({"value": "ek_1", "expires_at": 4_000_000_000})

    async def talk(self, socket: WebSocket) -> None:
        self.protocols, self.query = socket.scope["subprotocols"], socket.url.query
        await socket.accept(subprotocol="realtime")
        await socket.send_json({"type": "session.created", "event_id": "e1", "session": {"id": "s1"}})
        async for event in socket.iter_json():
            self.events.append(event)
        self.has_left = True

    @property
    def heard(self) -> set[str]:
        return {event["type"] for event in self.events}


def built_page(directory: Path) -> Path:
    """Build the page that stands in the documentation."""
    match = re.search(r"^```tsx\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert match is not None
    install(PACKAGES)
    (directory / "src").mkdir()
    (directory / "src" / "voice.tsx").write_text(match[1], encoding="utf-8")
    for name in ("src/main.tsx", "index.html", "vite.config.js"):
        (directory / name).write_bytes((PACKAGES / name).read_bytes())
    (directory / "node_modules").symlink_to(PACKAGES / "node_modules")
    return build(directory, directory / "built")


def test_a_page_talks_to_the_model_with_the_token_of_the_route(
    context: BrowserContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider()
    files = StaticFiles(directory=built_page(tmp_path), html=True)
    site = Starlette(routes=[Route("/api/realtime/token", realtime_token.app, methods=["POST"]), Mount("/", files)])
    with serving({"v1": provider.app}) as model, serving({"": site}) as served:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{model.port}/v1")
        context.add_init_script(MICROPHONE)
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        page.get_by_role("button", name="disconnected").click()
        expect(page.get_by_role("button", name="connected", exact=True)).to_be_visible()
        eventually(lambda: {"session.update", "input_audio_buffer.append"} <= provider.heard, "the page talks")
        assert provider.protocols == ["realtime", "openai-insecure-api-key.ek_1"]
        assert provider.query == "model=gpt-realtime"
        page.get_by_role("button", name="connected", exact=True).click()
        expect(page.get_by_role("button", name="disconnected")).to_be_visible()
        eventually(lambda: provider.has_left, "the page closes its socket")

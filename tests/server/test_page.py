"""The page around an app: its files, what it is told, its policy for content, and the checker."""

import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from tests.server.process import serve_process
from usechat.errors import PageMissing, Unauthenticated
from usechat.server.page import MAXIMUM_CHECKED_BYTES, PageSettings, WithPage
from usechat.server.requests import Action, allow_all
from usechat.turn import Identity

STREAM = (
    'data: {"type":"start","messageId":"m1"}\n\ndata: {"type":"start-step"}\n\n'
    'data: {"type":"text-start","id":"1"}\n\ndata: {"type":"text-delta","id":"1","delta":"Hi"}\n\n'
    'data: {"type":"text-end","id":"1"}\n\ndata: {"type":"finish-step"}\n\n'
    'data: {"type":"finish"}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text('<html><meta name="usechat" content="{}" /></html>')
    (tmp_path / "assets" / "index-1a2b.js").write_text("let page;")
    (tmp_path / "icon.svg").write_text("<svg/>")
    return tmp_path


def client(built: Path, *, settings: PageSettings | None = None, authorize: Any = allow_all) -> httpx2.AsyncClient:
    app = WithPage(
        PlainTextResponse("from the app"),
        settings=settings or PageSettings(),
        authorize=authorize,
        directory=built,
        texts={"/docs/serving.md": "# Serving"},
    )
    prefixed = Starlette(routes=[Mount("/under/a/prefix", app), Mount("/", app)])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(prefixed), base_url="http://test")


async def test_the_page_is_told_what_is_served(built: Path) -> None:
    settings = PageSettings(
        title='An "agent" <b>',
        name="my_app:agent",
        description="It answers.",
        api="/api/chat",
        auth=True,
        suggestions=("Why?",),
        chats=True,
    )
    page = await client(built, settings=settings).get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    found = re.search(r'<meta name="usechat" content="([^"]*)" />', page.text)
    assert found is not None
    assert json.loads(html.unescape(found[1])) == {
        "title": 'An "agent" <b>',
        "name": "my_app:agent",
        "description": "It answers.",
        "api": "api/chat",
        "check": "api/check",
        "auth": True,
        "suggestions": ["Why?"],
        "chats": True,
        "share": False,
    }


async def test_its_policy_allows_nothing_inline_and_no_other_host(built: Path) -> None:
    policy = (await client(built).get("/")).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy


@pytest.mark.parametrize("prefix", ["", "/under/a/prefix"])
@pytest.mark.parametrize(
    ("path", "media_type", "caching"),
    [
        ("/", "text/html; charset=utf-8", "no-cache"),
        ("/icon.svg", "image/svg+xml", "no-cache"),
        ("/assets/index-1a2b.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"),
    ],
)
async def test_its_files_are_served_under_any_prefix(
    built: Path, prefix: str, path: str, media_type: str, caching: str
) -> None:
    answered = await client(built).get(prefix + path)
    assert answered.status_code == 200
    assert answered.headers["content-type"] == media_type
    assert answered.headers["cache-control"] == caching


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, br", "gzip"), ("identity", None)])
async def test_files_are_compressed_for_those_who_take_it(built: Path, accepted: str, encoding: str | None) -> None:
    answered = await client(built).get("/assets/index-1a2b.js", headers={"accept-encoding": accepted})
    assert answered.headers.get("content-encoding") == encoding
    assert answered.text == "let page;"


@pytest.mark.parametrize("prefix", ["", "/under/a/prefix"])
async def test_a_text_is_shown_by_the_page_to_browsers_and_is_plain_for_others(built: Path, prefix: str) -> None:
    address = f"{prefix}/docs/serving.md"
    opened = await client(built).get(address, headers={"accept": "text/html,*/*"})
    assert (opened.status_code, opened.headers["location"]) == (303, f"{prefix}/?text=docs/serving.md")
    read = await client(built).get(address)
    assert (read.headers["content-type"], read.text) == ("text/plain; charset=utf-8", "# Serving")


async def test_the_rest_is_passed_on(built: Path) -> None:
    asking = client(built)
    assert (await asking.get("/api/chat/c1")).text == "from the app"
    assert (await asking.post("/")).text == "from the app"
    assert (await asking.get("/assets/../index.html")).text == "from the app"


def test_without_a_build_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PageMissing, match="make page"):
        WithPage(None, settings=PageSettings(), authorize=allow_all, directory=tmp_path)


async def test_the_checker_says_what_usechat_check_says(built: Path) -> None:
    report = (await client(built).post("/api/check", content=STREAM)).json()
    assert report["ok"] is True
    assert {sdk: verdict["ok"] for sdk, verdict in report["verdicts"].items()} == {"5": True, "6": True, "7": True}
    broken = (await client(built).post("/api/check", content=STREAM.replace("text-start", "text-begin"))).json()
    assert broken["ok"] is False
    assert broken["problems"][0]["rule"].startswith("UC")


async def test_the_checker_judges_the_release_that_was_asked_for_too(built: Path) -> None:
    report = (await client(built).post("/api/check?sdk=7.0.100", content=STREAM)).json()
    assert {sdk: verdict["ok"] for sdk, verdict in report["verdicts"].items()} == dict.fromkeys(
        ("5", "6", "7.0.100", "7"), True
    )
    answered = await client(built).post("/api/check?sdk=nonsense", content=STREAM)
    assert answered.status_code == 422
    assert "nonsense" in answered.text


async def test_the_checker_reads_no_more_than_it_may(built: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAXIMUM_CHECKED_BYTES // 65536 + 1):
            yield b"x" * 65536

    answered = await client(built).post("/api/check", content=endless())
    assert (answered.status_code, answered.text) == (413, f"The request holds more than {MAXIMUM_CHECKED_BYTES} bytes.")


async def test_what_cannot_be_judged_is_a_sentence(built: Path) -> None:
    answered = await client(built).post("/api/check", content='data: {"a":' + "[" * 100_000 + "\n\n")
    assert answered.status_code == 422
    assert "nested in more than" in answered.text


async def test_the_checker_is_for_those_who_may_ask(built: Path) -> None:
    asked: list[tuple[str, Action]] = []

    async def nobody(_request: Request, chat_id: str, action: Action) -> Identity | None:
        asked.append((chat_id, action))
        if len(asked) == 1:
            raise Unauthenticated("Who are you?")
        return None

    asking = client(built, authorize=nobody)
    assert [(await asking.post("/api/check", content=STREAM)).status_code for _ in range(2)] == [401, 404]
    assert asked == [("", "check"), ("", "check")]


def test_no_page_shows_none(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("async def agent(turn):\n    yield 'Hi'\n")
    with serve_process(tmp_path, "agent.py:agent", "--no-page") as served:
        assert "the chat page" not in served.written
        assert httpx2.get(f"{served.url}/", timeout=30).status_code == 404

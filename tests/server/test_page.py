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
from usechat.errors import InvalidSetting, PageMissing, Unauthenticated
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
def page_directory(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text('<html><meta name="usechat" content="{}" /></html>')
    (tmp_path / "assets" / "index-1a2b.js").write_text("let page;")
    (tmp_path / "icon.svg").write_text("<svg/>")
    return tmp_path


def client(
    page_directory: Path, *, settings: PageSettings | None = None, authorize: Any = allow_all
) -> httpx2.AsyncClient:
    app = WithPage(
        PlainTextResponse("from the app"),
        settings=settings or PageSettings(),
        authorize=authorize,
        directory=page_directory,
        texts={"/docs/serving.md": "# Serving"},
    )
    prefixed = Starlette(routes=[Mount("/under/a/prefix", app), Mount("/", app)])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(prefixed), base_url="http://test")


async def test_the_page_is_told_what_is_served(page_directory: Path) -> None:
    settings = PageSettings(
        title='An "agent" <b>',
        name="my_app:agent",
        description="It answers.",
        api="/api/chat",
        auth=True,
        suggestions=("Why?",),
        chats=True,
    )
    page = await client(page_directory, settings=settings).get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    match = re.search(r'<meta name="usechat" content="([^"]*)" />', page.text)
    assert match is not None
    assert json.loads(html.unescape(match[1])) == {
        "title": 'An "agent" <b>',
        "name": "my_app:agent",
        "description": "It answers.",
        "logo": "",
        "accent": None,
        "api": "api/chat",
        "check": "api/check",
        "auth": True,
        "loginUrl": "",
        "embed": [],
        "appsOrigin": "",
        "suggestions": ["Why?"],
        "chats": True,
        "share": False,
        "inspector": False,
    }


INDEX = """<html>
<meta name="usechat" content="{}" />
<title>usechat</title>
<link rel="icon" href="./icon.svg" />
</html>"""


async def test_title_logo_and_accent_are_there_before_the_script(page_directory: Path) -> None:
    (page_directory / "index.html").write_text(INDEX)
    logo = page_directory.parent / "Brand.PNG"
    logo.write_bytes(b"an image")
    settings = PageSettings(title="Ships & <boats>", logo=logo, accent="#7c3aed")
    page = client(page_directory, settings=settings)
    text = (await page.get("/")).text
    assert "<title>Ships &amp; &lt;boats&gt;</title>" in text
    assert '<link rel="icon" href="./logo.png" />' in text
    match = re.search(r'<meta name="usechat" content="([^"]*)" />', text)
    assert match is not None
    known = json.loads(html.unescape(match[1]))
    assert known["logo"] == "logo.png"
    assert known["accent"] == {
        "light": {"colour": "#7c3aed", "text": "#ffffff"},
        "dark": {"colour": "#a375f2", "text": "#000000"},
    }
    image = await page.get("/under/a/prefix/logo.png")
    assert (image.content, image.headers["content-type"]) == (b"an image", "image/png")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.svg", "missing.svg' cannot be read: No such file or directory"),
        ("page.html", "page.html' is not an image; use one of .svg, .png, .jpg, .jpeg, .webp, .gif, .ico"),
    ],
)
def test_a_logo_that_is_none_is_refused(page_directory: Path, name: str, sentence: str) -> None:
    settings = PageSettings(logo=page_directory / name)
    with pytest.raises(InvalidSetting, match=re.escape(sentence)):
        WithPage(None, settings=settings, authorize=allow_all, directory=page_directory)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (PageSettings(login_url="/login"), "set auth=True, too"),
        (PageSettings(auth=True, login_url="javascript:alert(1)"), "is neither https://… nor a path such as /login"),
        (PageSettings(auth=True, login_url="//other.example"), "is neither https://… nor a path such as /login"),
    ],
)
def test_a_sign_in_that_leads_nowhere_is_refused(page_directory: Path, settings: PageSettings, sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(sentence)):
        WithPage(None, settings=settings, authorize=allow_all, directory=page_directory)


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example.com", "example.com", "https://a.example/", "https://a.example;x"]
)
def test_what_is_no_origin_cannot_embed_the_page(page_directory: Path, origin: str) -> None:
    with pytest.raises(InvalidSetting, match=r"cannot embed the page; write its origin as the browser does"):
        WithPage(None, settings=PageSettings(embed=(origin,)), authorize=allow_all, directory=page_directory)


async def test_only_pages_of_named_origins_may_show_it_in_a_frame_and_get_the_widget(page_directory: Path) -> None:
    (page_directory / "widget.js").write_text("the widget")
    alone = client(page_directory)
    policy = (await alone.get("/")).headers["content-security-policy"]
    assert policy.endswith("; frame-ancestors 'none'")
    assert (await alone.get("/widget.js")).text != "the widget"
    origins = ("https://a.example", "http://localhost:3000")
    embedded = client(page_directory, settings=PageSettings(embed=origins))
    policy = (await embedded.get("/")).headers["content-security-policy"]
    assert policy.endswith("; frame-ancestors https://a.example http://localhost:3000")
    assert (await embedded.get("/widget.js")).text == "the widget"


SANDBOX = {"mcp-sandbox.html": "the sandbox", "mcp-sandbox.css": "", "mcp-sandbox.js": "let sandbox;"}


async def test_apps_are_shown_from_the_one_origin_that_is_named(page_directory: Path) -> None:
    for name, text in SANDBOX.items():
        (page_directory / name).write_text(text)
    alone = client(page_directory)
    assert "frame-src" not in (await alone.get("/")).headers["content-security-policy"]
    assert (await alone.get("/mcp-sandbox.html")).text == "from the app"
    page_client = client(page_directory, settings=PageSettings(apps_origin="https://apps.example"))
    page = await page_client.get("/")
    assert " frame-src https://apps.example; " in page.headers["content-security-policy"]
    assert "&quot;appsOrigin&quot;:&quot;https://apps.example&quot;" in page.text
    assert (await page_client.get("/mcp-sandbox.html")).text == "from the app", "the page's own origin has no sandbox"


@pytest.mark.parametrize("prefix", ["", "/under/a/prefix"])
async def test_the_origin_of_apps_has_the_sandbox_and_nothing_else(page_directory: Path, prefix: str) -> None:
    for name, text in SANDBOX.items():
        (page_directory / name).write_text(text)
    page_client = client(page_directory, settings=PageSettings(apps_origin="https://apps.example:8443"))
    of_apps = {"host": "apps.example:8443"}
    sandbox = await page_client.get(f"{prefix}/mcp-sandbox.html", headers=of_apps)
    assert (sandbox.status_code, sandbox.text) == (200, "the sandbox")
    policy = sandbox.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'unsafe-inline';")
    assert "frame-src 'none'; base-uri 'none'; form-action 'none'" in policy
    assert (await page_client.get(f"{prefix}/mcp-sandbox.js", headers=of_apps)).text == "let sandbox;"
    for path in ("/", "/api/chats", "/assets/index-1a2b.js"):
        assert (await page_client.get(prefix + path, headers=of_apps)).status_code == 404
    assert (await page_client.post(f"{prefix}/api/chat", headers=of_apps)).status_code == 404
    assert (await page_client.post(f"{prefix}/mcp-sandbox.html", headers=of_apps)).status_code == 404


@pytest.mark.parametrize("origin", ["*", "apps.example", "https://apps.example/", "https://*.example", "https://a; b"])
def test_apps_are_not_shown_from_what_is_no_origin(page_directory: Path, origin: str) -> None:
    with pytest.raises(InvalidSetting, match=r"apps cannot be shown from .*; write the origin as the browser does"):
        WithPage(None, settings=PageSettings(apps_origin=origin), authorize=allow_all, directory=page_directory)


async def test_its_policy_allows_nothing_inline_and_no_other_host(page_directory: Path) -> None:
    policy = (await client(page_directory).get("/")).headers["content-security-policy"]
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
    page_directory: Path, prefix: str, path: str, media_type: str, caching: str
) -> None:
    response = await client(page_directory).get(prefix + path)
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    assert response.headers["cache-control"] == caching


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, br", "gzip"), ("identity", None)])
async def test_files_are_compressed_for_those_who_take_it(
    page_directory: Path, accepted: str, encoding: str | None
) -> None:
    response = await client(page_directory).get("/assets/index-1a2b.js", headers={"accept-encoding": accepted})
    assert response.headers.get("content-encoding") == encoding
    assert response.text == "let page;"


@pytest.mark.parametrize("prefix", ["", "/under/a/prefix"])
async def test_a_text_is_shown_by_the_page_to_browsers_and_is_plain_for_others(
    page_directory: Path, prefix: str
) -> None:
    address = f"{prefix}/docs/serving.md"
    opened = await client(page_directory).get(address, headers={"accept": "text/html,*/*"})
    assert (opened.status_code, opened.headers["location"]) == (303, f"{prefix}/?text=docs/serving.md")
    read = await client(page_directory).get(address)
    assert (read.headers["content-type"], read.text) == ("text/plain; charset=utf-8", "# Serving")


async def test_the_rest_is_passed_on(page_directory: Path) -> None:
    asking = client(page_directory)
    assert (await asking.get("/api/chat/c1")).text == "from the app"
    assert (await asking.post("/")).text == "from the app"
    assert (await asking.get("/assets/../index.html")).text == "from the app"


def test_without_a_build_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PageMissing, match="make page"):
        WithPage(None, settings=PageSettings(), authorize=allow_all, directory=tmp_path)


async def test_the_checker_says_what_usechat_check_says(page_directory: Path) -> None:
    report = (await client(page_directory).post("/api/check", content=STREAM)).json()
    assert report["ok"] is True
    assert {sdk: verdict["ok"] for sdk, verdict in report["verdicts"].items()} == {"5": True, "6": True, "7": True}
    second_report = (
        await client(page_directory).post("/api/check", content=STREAM.replace("text-start", "text-begin"))
    ).json()
    assert second_report["ok"] is False
    assert second_report["problems"][0]["rule"].startswith("UC")


async def test_the_checker_judges_the_release_that_was_asked_for_too(page_directory: Path) -> None:
    report = (await client(page_directory).post("/api/check?sdk=7.0.100", content=STREAM)).json()
    assert {sdk: verdict["ok"] for sdk, verdict in report["verdicts"].items()} == dict.fromkeys(
        ("5", "6", "7.0.100", "7"), True
    )
    response = await client(page_directory).post("/api/check?sdk=nonsense", content=STREAM)
    assert response.status_code == 422
    assert "nonsense" in response.text


async def test_the_checker_reads_no_more_than_it_may(page_directory: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAXIMUM_CHECKED_BYTES // 65536 + 1):
            yield b"x" * 65536

    response = await client(page_directory).post("/api/check", content=endless())
    assert (response.status_code, response.text) == (413, f"The request holds more than {MAXIMUM_CHECKED_BYTES} bytes.")


async def test_what_cannot_be_judged_is_a_sentence(page_directory: Path) -> None:
    response = await client(page_directory).post("/api/check", content='data: {"a":' + "[" * 100_000 + "\n\n")
    assert response.status_code == 422
    assert "nested in more than" in response.text


@pytest.mark.parametrize(("option", "has_inspector"), [((), False), (("--inspector",), True), (("--reload",), True)])
def test_developers_get_the_inspector(tmp_path: Path, option: tuple[str, ...], has_inspector: bool) -> None:
    (tmp_path / "agent.py").write_text("async def agent(turn):\n    yield 'Hi'\n")
    with serve_process(tmp_path, "agent.py:agent", *option) as served:
        page = html.unescape(httpx2.get(f"{served.url}/", timeout=30).text)
    assert f'"inspector":{json.dumps(has_inspector)}' in page


async def test_the_checker_is_for_those_who_may_ask(page_directory: Path) -> None:
    calls: list[tuple[str, Action]] = []

    async def nobody(_request: Request, chat_id: str, action: Action) -> Identity | None:
        calls.append((chat_id, action))
        if len(calls) == 1:
            raise Unauthenticated("Who are you?")
        return None

    asking = client(page_directory, authorize=nobody)
    assert [(await asking.post("/api/check", content=STREAM)).status_code for _ in range(2)] == [401, 404]
    assert calls == [("", "check"), ("", "check")]


def test_no_page_shows_none(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("async def agent(turn):\n    yield 'Hi'\n")
    with serve_process(tmp_path, "agent.py:agent", "--no-page") as served:
        assert "the chat page" not in served.written
        assert httpx2.get(f"{served.url}/", timeout=30).status_code == 404

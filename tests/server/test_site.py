"""A built site beside the page: its addresses, its policy, what browsers may keep, and who may read it."""

import base64
import gzip
import hashlib
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from usechat.server.auth.origin import LocalPagesOnly
from usechat.server.page import PageSettings, WithPage
from usechat.server.requests import allow_all
from usechat.server.site import Site

HTML = {"accept": "text/html,*/*"}
INLINE = "let theme = 1;"
RESUME = (
    f'<html><script>{INLINE}</script><script id="c" type="application/json">{{"a": 1}}</script>'
    '<script src="assets/bundle.js"></script></html>'
)


@pytest.fixture
def client(tmp_path: Path) -> httpx2.AsyncClient:
    return client_of(tmp_path, allow_all)


def client_of(directory: Path, authorize: Any) -> httpx2.AsyncClient:
    page, site = directory / "page", directory / "site"
    for folder in (page, site / "1.0" / "assets"):
        folder.mkdir(parents=True)
    (page / "index.html").write_text("<html>the page</html>")
    (site / "versions.json").write_text('[{"version": "1.0"}, {"version": "0.9"}]')
    (site / "1.0" / "index.html").write_text("<html>Start</html>")
    (site / "1.0" / "resume.html").write_text(RESUME)
    (site / "1.0" / "assets" / "bundle.0a1b2c3d.min.js").write_text("let bundle;")
    (directory / "secret.txt").write_text("secret")
    app = WithPage(
        PlainTextResponse("from the app"),
        settings=PageSettings(),
        authorize=authorize,
        directory=page,
        texts={"/docs/resume.md": "# Resume", "/docs/other.md": "# Other"},
        site=Site(site),
    )
    prefixed = Starlette(routes=[Mount("/under", app), Mount("/", app)])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(prefixed), base_url="http://localhost")


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("/docs/resume.md", "/docs/1.0/resume.html"),
        ("/docs/README.md", "/docs/1.0/index.html"),
        ("/docs", "/docs/1.0/index.html"),
        ("/docs/", "/docs/1.0/index.html"),
        ("/under/docs/resume.md", "/under/docs/1.0/resume.html"),
        ("/docs/other.md", "/?text=docs/other.md"),
    ],
    ids=[
        "a source",
        "the first source",
        "the directory",
        "the directory with a slash",
        "a prefix",
        "no page of the site",
    ],
)
async def test_a_browser_that_opens_a_source_is_sent_to_its_page(
    client: httpx2.AsyncClient, asked: str, shown: str
) -> None:
    response = await client.get(asked, headers=HTML)
    assert (response.status_code, response.headers["location"]) == (303, shown)


async def test_a_program_that_reads_a_source_gets_its_text(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/docs/resume.md")).text == "# Resume"


async def test_the_policy_of_a_page_names_its_inline_scripts_and_no_other_host(client: httpx2.AsyncClient) -> None:
    response = await client.get("/docs/1.0/resume.html", headers=HTML)
    policy = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
    digest = base64.b64encode(hashlib.sha256(INLINE.encode()).digest()).decode()
    assert response.text == RESUME
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "//" not in response.headers["content-security-policy"].replace(digest, "")
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_a_file_whose_name_has_a_hash_is_kept_and_others_are_asked_for_again(client: httpx2.AsyncClient) -> None:
    bundle = await client.get("/docs/1.0/assets/bundle.0a1b2c3d.min.js")
    page = await client.get("/docs/1.0/index.html")
    assert bundle.headers["content-type"] == "text/javascript; charset=utf-8"
    assert bundle.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert page.headers["cache-control"] == "no-cache"
    again = await client.get("/docs/1.0/index.html", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", page.headers["etag"])


async def test_files_are_compressed_for_those_who_can_read_it(client: httpx2.AsyncClient) -> None:
    async with client.stream("GET", "/docs/1.0/resume.html", headers={"accept-encoding": "gzip"}) as response:
        raw = b"".join([piece async for piece in response.aiter_raw()])
    assert gzip.decompress(raw).decode() == RESUME
    plain = await client.get("/docs/1.0/resume.html", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    "path", ["/docs/1.0/nothing.html", "/docs/../../secret.txt", "/docs/%2e%2e/secret.txt", "/docsx"]
)
async def test_what_is_no_file_of_the_site_is_asked_of_the_app(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path, headers=HTML)).text == "from the app"


async def test_the_page_stays_where_it_is(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/", headers=HTML)).text == "<html>the page</html>"


@pytest.mark.parametrize(("host", "status"), [("localhost:8000", 200), ("127.0.0.1", 200), ("evil.example", 403)])
async def test_a_name_of_another_host_that_leads_to_this_machine_is_refused(
    tmp_path: Path, host: str, status: int
) -> None:
    client = client_of(tmp_path, LocalPagesOnly())
    response = await client.get("/docs/1.0/resume.html", headers={"host": host})
    assert response.status_code == status
    assert (response.text == RESUME) == (status == 200)

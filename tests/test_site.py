"""The documentation's site: pages gathered from the repository, links rewritten, built without a warning."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from scripts.build_site import (
    PUBLIC,
    decisions,
    examples,
    examples_index,
    llms,
    llms_full,
    on_the_site,
    without_unused_script,
)
from scripts.generate_docs import CHOOSER, ROOT
from tests.built_site import build_site
from tests.test_public import ADAPTERS
from tests.test_public import PUBLIC as PUBLIC_MODULES
from usechat import __version__

pytest.importorskip("zensical", reason="the site is built where the group `docs` is installed: Python 3.11")
from scripts.site.docstrings import as_markdown

pytestmark = pytest.mark.once

FOREIGN = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?:[^\s\">]+)")


@pytest.mark.parametrize(
    ("path", "text", "rewritten"),
    [
        ("README.md", "[rules](docs/rules.md#uc101)", "[rules](rules.md#uc101)"),
        ("docs/auth.md", "[start](../README.md)", "[start](index.md)"),
        ("docs/frameworks/langgraph.md", "[write one](../adapters.md)", "[write one](../adapters.md)"),
        ("docs/serving.md", "[all](../examples/flows)", "[all](examples/index.md)"),
        ("docs/serving.md", "[a](../examples/chat_app.py)", "[a](examples/chat_app.py.md)"),
        ("docs/metrics.md", "[rules](../ops/prometheus-rules.yml)", "[rules](ops/prometheus-rules.yml)"),
        ("bench/README.md", "![chart](results/core.svg)", "![chart](results/core.svg)"),
        ("README.md", "[decisions](docs/decisions/)", "[decisions](decisions/index.md)"),
        ("README.md", "[a](https://example.org/docs/x.md)", "[a](https://example.org/docs/x.md)"),
        ("README.md", "```\n[a](docs/rules.md)\n```", "```\n[a](docs/rules.md)\n```"),
        ("docs/page.md", "[here](#top)", "[here](#top)"),
        ("docs/page.md", "```toml a.toml\n[a](b)\n```", '```toml title="a.toml"\n[a](b)\n```'),
    ],
)
def test_links_lead_to_where_their_targets_stand_on_the_site(path: str, text: str, rewritten: str) -> None:
    assert on_the_site(text, path) == rewritten


def test_a_page_without_a_diagram_does_not_load_the_script_that_draws_them() -> None:
    script = '<script src="./assets/mermaid.min.js"></script>'
    page = f'<pre class="mermaid"></pre><script src="a.js"></script>{script}'
    assert without_unused_script(page) == page
    assert without_unused_script(f'<p>Text</p><script src="a.js"></script>{script}') == (
        '<p>Text</p><script src="a.js"></script>'
    )


def test_the_list_of_decisions_numbers_each_once() -> None:
    listed = [line for line in decisions() if line.startswith("1. ")]
    assert len(listed) == len([*(ROOT / "docs" / "decisions").glob("*.md")])
    assert "1. [The page is a stock client, built into the wheel](0010-the-page.md)" in listed


def test_sections_of_the_chooser_become_tabs_with_their_blocks() -> None:
    begin, end = "<!-- generated: chooser -->\nAll.\n\n", "<!-- end -->\n\n### Three\n"
    sections = "### One\n\n```sh\na\n```\n\n### Two\n\nb\n"
    tabs = '=== "One"\n\n    ```sh\n    a\n    ```\n\n=== "Two"\n\n    b\n'
    assert on_the_site(f"{begin}{sections}{end}", "docs/frameworks.md") == f"{begin}{tabs}{end}"


def test_the_index_has_a_sentence_for_each_example() -> None:
    lines = [line for line in examples_index() if line.startswith("- ")]
    assert len(lines) == len(examples())
    assert "- [`agent.py`](own_database/agent.py.md): An agent that counts." in lines
    article = "- [`article-flow.yaml`](flows/article-flow.yaml.md): A writer and an illustrator work at the same time."
    assert article in lines
    assert [line for line in lines if "__init__" in line] == []


def test_language_models_get_an_index_of_the_guides_and_their_whole_text() -> None:
    index, whole = [*llms()], "\n".join(llms_full())
    assert "- [Start](start.html): Install usechat, and serve your first agent in five lines." in index
    assert [
        line for line in index if line.startswith("- ") and not re.fullmatch(r"- \[.+\]\(.+\.html\): .+", line)
    ] == []
    guides = [page for page in (ROOT / "docs").glob("*.md") if page.stem != "index"]
    assert len([line for line in index if line.startswith("- ")]) == len(guides) + len(CHOOSER)
    assert all(page.read_text(encoding="utf-8") in whole for page in guides)


def test_docstrings_are_read_as_markdown() -> None:
    text = "See :class:`~usechat.Text`.\n\n>>> 1 + 1  # doctest: +SKIP\n2\n\nAnd :func:`as_source`."
    assert as_markdown(text) == "See `Text`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nAnd `as_source`."


def test_the_reference_has_every_public_module() -> None:
    assert sorted(PUBLIC) == sorted({*PUBLIC_MODULES, *ADAPTERS})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory)


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {str(page.relative_to(site / __version__)): page for page in (site / __version__).rglob("*.html")}
    sources = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    assert sources - {*pages} == set()
    assert {f"reference/{name}.html" for name in PUBLIC} - {*pages} == set()
    for page in pages.values():
        loaded = re.findall(
            r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?:[^\s\">]+)", page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name


def test_a_page_that_no_section_lists_is_found_by_nobody() -> None:
    listed = set(re.findall(r'"([\w/.-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    sources = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    sources |= {f"reference/{name}.md" for name in PUBLIC}
    assert {page for page in sources - listed if not page.startswith("decisions/")} == set()


def test_the_versions_are_listed_beside_each_other(site: Path) -> None:
    assert json.loads((site / "versions.json").read_text()) == [
        {"version": __version__, "title": __version__, "aliases": []}
    ]
    assert f"url={__version__}/index.html" in (site / "index.html").read_text()


def test_the_search_finds_words_of_the_reference(site: Path) -> None:
    index = (site / __version__ / "search.json").read_text(encoding="utf-8")
    assert "ChatApp" in index
    assert "reference/usechat.server.html" in index


@pytest.mark.parametrize(
    ("arguments", "port"), [(["docs-serve"], 8001), (["demo"], 8000), (["demo", "PORT=8123"], 8123)]
)
def test_make_serves_at_the_port_of_its_help_or_of_choice(arguments: list[str], port: int) -> None:
    ours = ("PORT", "MAKEFLAGS", "MAKELEVEL")  # of the make that runs the tests
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    commands = subprocess.run(
        ["make", "--dry-run", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert commands.stdout.endswith(f" {port}\n")

"""The documentation is run: examples, links, generated tables, versions."""

import asyncio
import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import usechat
from scripts.generate_docs import ROOT, pages, regenerate
from usechat import ChunkDecoder, MessageBuilder

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
README = PAGES["README.md"].read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run_example(number: int) -> tuple[dict[str, Any], str]:
    """Run a Python block of the README; return its names and what it printed."""
    names: dict[str, Any] = {"__name__": "example"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(EXAMPLES[number], f"README.md, example {number + 1}", "exec"), names)
    return names, printed.getvalue()


def message_of(body: bytes) -> Any:
    decoder, builder = ChunkDecoder(), MessageBuilder(sdk="7")
    for chunk in decoder.receive(body):
        builder.receive(chunk)
    return builder.message


def test_the_first_example_prints_a_turn() -> None:
    _, printed = run_example(0)
    assert [part["type"] for part in message_of(printed.encode())["parts"]] == [
        "step-start",
        "text",
        "tool-weather",
        "step-start",
        "text",
    ]
    assert printed.endswith("data: [DONE]\n\n")


def test_the_endpoint_answers_a_request() -> None:
    names, _ = run_example(1)
    body = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}

    async def ask() -> bytes:
        transport = httpx2.ASGITransport(app=names["app"])
        async with httpx2.AsyncClient(transport=transport, base_url="http://example") as client:
            return (await client.post("/api/chat", json=body)).content

    text = next(part for part in message_of(asyncio.run(ask()))["parts"] if part["type"] == "text")
    assert text["text"] == "You said: hi"


def test_the_reader_example_prints_the_parts() -> None:
    assert run_example(2)[1] == "[{'type': 'text', 'text': 'Hi', 'state': 'streaming'}]\n"


def test_the_readme_is_short_and_its_examples_are_all_run() -> None:
    assert len(README.splitlines()) <= 150
    assert len(EXAMPLES) == 3
    assert len([line for line in EXAMPLES[0].splitlines() if line]) <= 10


def test_the_demo_runs() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", "Is", "it", "warm?"], capture_output=True, text=True, check=True
    )
    assert "You asked: Is it warm?" in done.stdout
    assert "[tool] failed: The terrace is full." in done.stdout
    assert "step-start, reasoning, tool-weather, tool-book_table, step-start, text" in done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_generated_blocks_are_up_to_date(name: str) -> None:
    page = PAGES[name].read_text(encoding="utf-8")
    assert regenerate(page) == page, "run `make docs`"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[name].read_text(encoding="utf-8"))
    assert [link for link in links if not (PAGES[name].parent / link).exists()] == []


def test_the_architecture_names_every_module() -> None:
    architecture = PAGES["ARCHITECTURE.md"].read_text(encoding="utf-8")
    modules = {path.name for path in Path(usechat.__file__).parent.glob("*.py")} - {"__init__.py"}
    assert {module for module in modules if f"`{module}`" not in architecture} == set()


def test_the_changelog_begins_with_this_version() -> None:
    changelog = PAGES["CHANGELOG.md"].read_text(encoding="utf-8")
    assert re.findall(r"^## \[([^\]]+)\]", changelog, re.MULTILINE)[0] == usechat.__version__


def test_the_version_is_the_same_everywhere() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{usechat.__version__}"' in pyproject


def test_the_public_names_are_few_sorted_and_there() -> None:
    assert usechat.__all__ == sorted(usechat.__all__)
    assert len(usechat.__all__) <= 25
    assert [name for name in usechat.__all__ if not hasattr(usechat, name)] == []


def test_every_public_name_is_explained() -> None:
    undocumented = [name for name in usechat.__all__ if name != "__version__" and not getattr(usechat, name).__doc__]
    assert undocumented == []

"""The documentation is run: examples, links, generated tables, versions."""

import asyncio
import contextlib
import io
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

import usechat
from scripts.generate_docs import (
    CHOOSER,
    OPENAPI,
    ROOT,
    SKILL,
    agent_in,
    install,
    is_released,
    openapi_page,
    pages,
    regenerate,
)
from tests import adapter_page
from tests.modules import forgotten_modules
from usechat import AdapterSource, ChunkDecoder, MessageBuilder, Text
from usechat.adapters.pydantic_ai import PydanticAISource
from usechat.cli.plan import Plan, make_app
from usechat.parts import Part
from usechat.sources import as_source

pytestmark = pytest.mark.once

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
README = PAGES["README.md"].read_text(encoding="utf-8")


RUN_BY = {
    "README.md": "tests/test_docs.py",
    "docs/adapters.md": "tests/test_docs.py",
    "docs/agent-ops-reference.md": "tests/agent_ops/test_docs.py",
    "docs/apps.md": "tests/test_guides.py",
    "docs/auth.md": "tests/server/auth/test_bearer.py",
    "docs/chats.md": "tests/test_docs.py",
    "docs/check.md": "tests/test_docs.py",
    "docs/client.md": "tests/client/test_docs.py",
    "docs/data.md": "tests/test_guides.py",
    "docs/deploy.md": "tests/test_guides.py",
    "docs/errors.md": "tests/test_guides.py",
    "docs/files.md": "tests/test_guides.py",
    "docs/frameworks.md": "tests/test_docs.py",
    "docs/genkit.md": "tests/genkit/test_docs.py",
    "docs/metrics.md": "tests/test_guides.py",
    "docs/migrate.md": "tests/test_guides.py",
    "docs/open-harness-reference.md": "tests/open_harness/test_page.py",
    "docs/open-harness.md": "tests/open_harness/test_page.py",
    "docs/page.md": "tests/test_docs.py",
    "docs/parts.md": "tests/test_guides.py",
    "docs/platforms.md": "tests/test_platforms.py",
    "docs/resume.md": "tests/test_guides.py",
    "docs/serving.md": "tests/test_docs.py",
    "docs/start.md": "tests/test_docs.py",
    "docs/survive.md": "tests/test_guides.py",
    "docs/temporal.md": "tests/temporal/test_docs.py",
    "docs/tools.md": "tests/test_guides.py",
    "docs/tutorial.md": "tests/browser/test_tutorial.py",
    "docs/values.md": "tests/test_guides.py",
    "src/usechat/.agents/skills/usechat/SKILL.md": "tests/test_docs.py",
}
"""The test that runs the Python of each page. The pages of frameworks are run by `tests/adapters/examples.py`."""


def test_the_python_of_every_page_is_run_by_a_test() -> None:
    with_python = {name for name in PAGES if examples_of(name) and not name.startswith("docs/frameworks/")}
    assert with_python == {*RUN_BY}
    for name, test in RUN_BY.items():
        assert Path(name).stem in (ROOT / test).read_text(encoding="utf-8"), name


def examples_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGES[page].read_text(encoding="utf-8"), re.DOTALL)


def run_example(page: str, number: int) -> tuple[dict[str, Any], str]:
    """Run a Python block of a page; return its names and what it printed."""
    names: dict[str, Any] = {"__name__": "example"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(examples_of(page)[number], f"{page}, example {number + 1}", "exec"), names)
    return names, printed.getvalue()


def message_of(body: bytes) -> Any:
    decoder, builder = ChunkDecoder(), MessageBuilder(sdk="7")
    for chunk in decoder.receive(body):
        builder.receive(chunk)
    return builder.message


def test_the_example_of_a_stream_prints_a_turn() -> None:
    _, printed = run_example("docs/check.md", 1)
    assert [part["type"] for part in message_of(printed.encode())["parts"]] == [
        "step-start",
        "text",
        "tool-weather",
        "step-start",
        "text",
    ]
    assert printed.endswith("data: [DONE]\n\n")


def ask(app: Any) -> str:
    """Return what an app answers to a chat request."""
    body = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}

    async def post() -> bytes:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.post("/api/chat", json=body)).content

    return "".join(part["text"] for part in message_of(asyncio.run(post()))["parts"] if part["type"] == "text")


def test_the_agent_answers_in_a_route_and_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _ = run_example("README.md", 0)
    monkeypatch.setitem(sys.modules, "my_app", ModuleType("my_app"))
    sys.modules["my_app"].__dict__.update(agent)
    assert ask(make_app(Plan(target="my_app:agent")).app) == "You said: hi"
    route, _ = run_example("README.md", 1)
    assert ask(route["app"]) == "You said: hi"


def test_the_first_page_holds_code_that_runs_and_only_its_model_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    *without_key, with_key = examples_of("docs/start.md")
    names: dict[str, Any] = {"__name__": "example"}
    for block in without_key:
        exec(compile(block, "docs/start.md", "exec"), names)
    assert [ask(names["app"]), ask(names["chats"])] == ["You said: hi"] * 2
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    exec(compile(with_key, "docs/start.md", "exec"), names)
    assert isinstance(as_source(names["assistant"]), PydanticAISource)


def test_the_code_of_the_chooser_stands_on_the_pages_of_the_frameworks_where_it_is_run() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "frameworks").glob("*.md"))
    lines = [line for example in examples_of("docs/frameworks.md") for line in example.splitlines()]
    assert [line for line in lines if line.removesuffix("Turn") not in pages] == []
    assert {*CHOOSER} == {page.stem for page in (ROOT / "docs" / "frameworks").glob("*.md")}


def test_the_chooser_shows_the_agent_without_the_route() -> None:
    route = '@app.post("/api/chat")\nasync def chat(request):\n    return await chat_response(request, agent)\n'
    head = "from fastapi import FastAPI\nfrom frame import Agent\n\nfrom usechat import chat_response\n\n"
    assert (
        agent_in(f"{head}agent = Agent()\napp = FastAPI()\n\n\n{route}") == "from frame import Agent\n\nagent = Agent()"
    )


def test_usechat_is_installed_from_the_checkout_until_the_changelog_has_a_dated_version() -> None:
    assert not is_released("## [0.1.0] - unreleased\n")
    assert is_released("## [0.2.0] - unreleased\n\n## [0.1.0] - 2027-01-31\n")
    assert "pip install ." in "\n".join(install(from_index=False))
    assert [*install(from_index=True)] == ["```sh", "pip install usechat", "```"]


def test_the_page_about_serving_holds_code_that_runs() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", PAGES["docs/serving.md"].read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, "docs/serving.md", "exec"), names)
    assert ask(names["app"]) == "You said: hi"


@pytest.mark.parametrize(
    ("name", "text"),
    [("fastapi_route", "You said: hi "), ("chat_app", "Let me look. It is 21 °C in Paris. You asked: hi ")],
)
def test_the_examples_answer(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with forgotten_modules(ROOT / "examples"):
        assert ask(make_app(Plan(target=f"{ROOT / 'examples' / name}.py:app")).app) == text


def test_the_skill_holds_code_that_runs_and_names_what_is_there(usechat_client: Any) -> None:
    skill = str(SKILL.relative_to(ROOT))
    names: dict[str, Any] = {"__name__": "example"}
    for block in examples_of(skill):
        exec(compile(block, skill, "exec"), names)
    assert [ask(names["app"]), ask(names["chats"])] == ["You said: hi. "] * 2
    names["test_the_agent_asks_before_it_deletes"](usechat_client)
    pages = (SKILL, PAGES["docs/options.md"], PAGES["docs/cli.md"])
    text, *options = (page.read_text(encoding="utf-8") for page in pages)
    flags = set(re.findall(r"(--[\w-]+)", text.partition("# usechat")[2]))
    assert flags == {"--auth", "--chats", "--cors", "--framework", "--page", "--redis"}
    assert [flag for flag in flags if f"\n  {flag} " not in "".join(options)] == []


def test_the_files_and_targets_of_the_page_for_tools_are_there() -> None:
    text = PAGES["AGENTS.md"].read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|tests)/[\w/.]+)`", text) + re.findall(r"(tests/[\w/.]+\.py) -k", text)
    assert len(paths) == 9
    assert [path for path in paths if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [name for name in re.findall(r"`make ([\w-]+)`", text) if f"\n{name}:" not in makefile] == []


def test_the_examples_of_the_checker_and_of_the_reader_print_what_they_find() -> None:
    assert run_example("docs/check.md", 0)[1] == "['UC301', 'UC407', 'UC403']\n"
    assert run_example("docs/check.md", 2)[1] == "[{'type': 'text', 'text': 'Hi', 'state': 'streaming'}]\n"
    assert len(examples_of("docs/check.md")) == 3


def test_the_readme_is_short_and_its_examples_are_all_run() -> None:
    assert len(README.splitlines()) <= 80
    assert len(examples_of("README.md")) == 2


def test_the_page_about_the_page_holds_code_that_runs() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", PAGES["docs/page.md"].read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, "docs/page.md", "exec"), names)
    assert ask(names["app"]) == "You said: hi"


def test_the_page_about_chats_holds_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", PAGES["docs/chats.md"].read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, "docs/chats.md", "exec"), names)
    assert [ask(names["app"]) for _ in range(2)] == ["You said: hi"] * 2
    assert [message["role"] for message in names["database"]["", "c1"]] == ["user", "assistant"]


@pytest.mark.parametrize("name", PAGES)
def test_generated_blocks_are_up_to_date(name: str) -> None:
    page = PAGES[name].read_text(encoding="utf-8")
    assert regenerate(page) == page, "run `make docs`"


def test_the_description_of_the_routes_is_up_to_date() -> None:
    assert OPENAPI.read_text(encoding="utf-8") == openapi_page(), "run `make docs`"


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
    assert len(set(usechat.__all__) - {"__version__"}) <= 36
    assert [name for name in usechat.__all__ if not hasattr(usechat, name)] == []


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match=r"^module 'usechat' has no attribute 'nothing'$"):
        _ = usechat.nothing


def test_every_public_name_is_explained() -> None:
    undocumented = [name for name in usechat.__all__ if name != "__version__" and not getattr(usechat, name).__doc__]
    assert undocumented == []


def test_the_page_about_adapters_holds_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with forgotten_modules(tmp_path):
        for name, text in adapter_page.files().items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", adapter_page.PAGE.read_text(encoding="utf-8"), re.DOTALL)
        assert len(blocks) == 4
        for block in blocks:
            exec(compile(block, "docs/adapters.md", "exec"), {"__name__": "example"})
        adapter = sys.modules["usechat_chirp"]
        source = adapter.source_of(import_module("my_app").agent)
        assert isinstance(source, AdapterSource)
        assert adapter.source_of("no agent") is None

        async def said() -> list[Part]:
            return [part async for part in adapter.parts(sys.modules["chirp"].Agent("Robin").stream("Rome"))]

        assert [part.text for part in asyncio.run(said()) if isinstance(part, Text)][-1] == "in Rome."
        assert len(adapter_page.files()["usechat_chirp.py"].splitlines()) < 80

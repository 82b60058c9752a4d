"""Finding the object to serve: what is found, and what is said when it is not."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from tests.modules import forgotten_modules
from usechat.cli.targets import is_asgi_app, targets_in
from usechat.errors import CannotLoad
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.server import ChatApp
from usechat.targets import directory_of, load_object
from usechat.turn import Turn


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty directory, and forget afterwards what was imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with forgotten_modules(tmp_path):
        yield


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("target", ["served_app:agent", "served_app.py:agent", "./served_app.py:agent"])
def test_a_module_and_a_file(target: str) -> None:
    write("served_app.py", "agent = 'found'")
    assert load_object(target) == "found"


def test_a_name_may_lead_through_attributes() -> None:
    write("served_app.py", "class Home:\n    agent = 'found'\nhome = Home()")
    assert load_object("served_app:home.agent") == "found"


def test_a_package_and_what_stands_beside_a_file() -> None:
    write("served_package/__init__.py", "")
    write("served_package/inner.py", "from served_package.other import agent")
    write("served_package/other.py", "agent = 'found'")
    assert load_object("served_package.inner:agent") == "found"
    write("elsewhere/served_main.py", "from served_beside import agent")
    write("elsewhere/served_beside.py", "agent = 'found beside'")
    assert load_object("elsewhere/served_main.py:agent") == "found beside"


def test_a_file_of_a_package_finds_its_package() -> None:
    write("served_beside_packages.py", "word = 'found'")
    write("agents_of_adk/__init__.py", "from . import agent")
    write("agents_of_adk/tools/__init__.py", "")
    write("agents_of_adk/tools/words.py", "from served_beside_packages import word")
    write("agents_of_adk/agent.py", "from .tools.words import word\n\nroot_agent = [word]")
    agent = load_object("agents_of_adk/agent.py:root_agent")
    assert agent == ["found"]
    assert load_object("agents_of_adk.agent:root_agent") is agent
    assert load_object("agents_of_adk/tools/words.py:word") == "found"


def test_a_directory_names_its_agents() -> None:
    write("graphs/langgraph.json", '{"graphs": {"a": "./src/a.py:graph", "b": {"path": "b.py:make"}, "c": "c.d:e"}}')
    write("adk/agent.py", "from x import y\n\nroot_agent = y")
    write("adk_app/agent.py", "app: App = App()")
    assert targets_in("graphs") == ["graphs/src/a.py:graph", "graphs/b.py:make", "c.d:e"]
    assert targets_in("adk/") == ["adk/agent.py:root_agent"]
    assert targets_in("adk_app") == ["adk_app/agent.py:app"]
    assert targets_in("my_app:agent") == ["my_app:agent"]


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("agent.py", "agent = 1", "has neither a langgraph.json nor an agent.py with a root_agent; give MODULE:NAME"),
        ("langgraph.json", "{", "langgraph.json cannot be read: "),
        ("langgraph.json", "{}", "langgraph.json cannot be read: Object missing required field `graphs`"),
    ],
)
def test_a_directory_that_names_nothing_is_refused(file: str, text: str, complaint: str) -> None:
    write(f"somewhere/{file}", text)
    with pytest.raises(CannotLoad) as refusal:
        targets_in("somewhere")
    assert complaint in str(refusal.value)


def test_a_file_is_run_once() -> None:
    write("served_app.py", "agent = object()")
    assert load_object("served_app.py:agent") is load_object("served_app.py:agent") is load_object("served_app:agent")


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("agent", "'agent' names no object; give MODULE:NAME or FILE.py:NAME, such as my_app:agent"),
        ("served_app:", "'served_app:' names no object; "),
        ("http://127.0.0.1:1/flow", "'http://127.0.0.1:1/flow' is an address; name its kind with --as "),
        ("served_app:a b", "'served_app:a b' names no object; "),
        (":agent", "':agent' names no object; "),
        ("served_app:agnet", "served_app has no 'agnet'; did you mean 'agent'?"),
        ("served_app:agent.deeper", "served_app has no 'agent.deeper'"),
        ("served_nowhere:agent", "there is no module 'served_nowhere' in "),
        ("served_nowhere.inner:agent", "there is no module 'served_nowhere.inner' in "),
        ("served_app.inner:agent", "there is no module 'served_app.inner' in "),
        ("..:agent", "'..:agent' names no object; "),
        ("a directory/x:agent", "there is no file a directory/x"),
        ("no/such.py:agent", "there is no file no/such.py"),
        ("json.py:agent", "json.py cannot be imported under the name 'json'; rename the file"),
        (
            "served_raises.py:agent",
            "served_raises.py cannot be imported: KeyError: 'no key' (served_raises.py, line 2)",
        ),
        ("served_raises:agent", "served_raises cannot be imported: KeyError: 'no key' (served_raises.py, line 2)"),
        (
            "served_needs:agent",
            "served_needs cannot be imported: ModuleNotFoundError: No module named 'served_lacking'",
        ),
        ("served_syntax.py:agent", "served_syntax.py cannot be imported: SyntaxError: "),
        ("served_exits.py:agent", "served_exits.py cannot be imported: SystemExit: 3 (served_exits.py, line 1)"),
        ("served_relative.py:agent", "served_relative.py cannot be imported: ImportError: attempted relative import"),
    ],
)
def test_what_cannot_be_found_is_told_in_one_line(target: str, complaint: str) -> None:
    write("served_app.py", "agent = 'found'")
    write("json.py", "")
    write("served_raises.py", "agent = 'found'\nraise KeyError('no key')")
    write("served_needs.py", "import served_lacking")
    write("served_syntax.py", "agent = (")
    write("served_exits.py", "raise SystemExit(3)")
    write("served_relative.py", "from . import agent")
    with pytest.raises(CannotLoad) as caught:
        load_object(target)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_the_cause_is_kept_for_those_who_ask() -> None:
    write("served_raises.py", "raise KeyError('no key')")
    with pytest.raises(CannotLoad) as caught:
        load_object("served_raises:agent")
    assert isinstance(caught.value.__cause__, KeyError)


def test_where_the_code_lives(tmp_path: Path) -> None:
    assert directory_of("served_app:agent") == tmp_path
    assert directory_of("inner/served_app.py:agent") == tmp_path / "inner"


async def async_generator(_turn: Turn) -> AsyncIterator[str]:
    yield ""


def generator(_turn: Turn) -> Iterator[str]:
    yield ""


async def coroutine(_turn: Turn) -> str:
    return ""


def plain(_turn: Turn) -> str:
    return ""


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI app of one function."""


class Transport:
    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        raise NotImplementedError

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        raise NotImplementedError


class Callable:
    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        yield turn.text


@pytest.mark.parametrize("agent", [async_generator, generator, coroutine, plain, Transport(), Callable(), str.upper])
def test_what_answers_a_turn_is_no_asgi_app(agent: Any) -> None:
    assert not is_asgi_app(agent)


@pytest.mark.parametrize("app", [asgi, Starlette(), ChatApp(plain, metrics=False)])
def test_what_is_an_asgi_app(app: Any) -> None:
    assert is_asgi_app(app)


@pytest.mark.parametrize("address", ["localhost:8000/api/chat", "localhost:8000", "localhost/chat", "example.org/chat"])
def test_an_address_without_its_scheme_is_recognised(address: str) -> None:
    with pytest.raises(CannotLoad, match=f"names no object; .*; if it is an address, write http://{address}$"):
        load_object(address)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("crewai", "crewai"),
        ("agents", "openai-agents"),
        ("workflows", "llama-index"),
        ("agno.agent", "agno"),
        ("google.adk.agents", "google-adk"),
    ],
)
def test_a_framework_that_is_not_installed_is_named_with_its_extra(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)  # as if it were not installed
    name = f"served_{extra.replace('-', '_')}"
    write(f"{name}.py", f"import {module}")
    with pytest.raises(CannotLoad) as failure:
        load_object(f"{name}:agent")
    assert str(failure.value).endswith(f"; run: pip install 'usechat[{extra}]'")

"""The public face: which modules and names people may rely on. Everything else is free to move."""

import ast
import enum
import inspect
import logging
import re
import textwrap
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.generate_docs import ROOT, pages
from tests.syntax_trees import nodes_of, parse
from usechat import errors

pytestmark = pytest.mark.quick

ADAPTERS = {
    "usechat.adapters.langgraph": "langgraph",
    "usechat.adapters.openai_agents": "agents",
    "usechat.adapters.pydantic_ai": "pydantic_ai",
    "usechat.temporal": "temporalio",
    "usechat.temporal.openai_agents": "temporalio",
    "usechat.temporal.pydantic_ai": "temporalio",
}
"""The modules that can be imported where their framework is installed."""
PUBLIC = {
    name: import_module(name)
    for name in (
        "usechat",
        "usechat.adapters.a2a",
        "usechat.adapters.ag_ui",
        "usechat.adapters.agent_framework",
        "usechat.adapters.agno",
        "usechat.adapters.anthropic",
        "usechat.adapters.claude",
        "usechat.adapters.crewai",
        "usechat.adapters.dspy",
        "usechat.adapters.elicitation",
        "usechat.adapters.google_adk",
        "usechat.adapters.haystack",
        "usechat.adapters.litellm",
        "usechat.adapters.llama_index",
        "usechat.adapters.openai",
        "usechat.adapters.smolagents",
        "usechat.adapters.strands",
        "usechat.agent_ops",
        "usechat.agent_ops.errors",
        "usechat.chats",
        "usechat.check",
        "usechat.cli",
        "usechat.client",
        "usechat.database",
        "usechat.documentation",
        "usechat.errors",
        "usechat.genkit",
        "usechat.ids",
        "usechat.input_mapping",
        "usechat.lazy",
        "usechat.open_harness",
        "usechat.open_harness.errors",
        "usechat.parts",
        "usechat.server",
        "usechat.targets",
        "usechat.testing",
        "usechat.transports",
        "usechat.typescript",
        "usechat.ui_messages",
        "usechat.values",
        *(adapter for adapter, framework in ADAPTERS.items() if find_spec(framework) is not None),
    )
}
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
NAMES = Path(__file__).with_name("public_names.txt")
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
PAGES = [page for page in pages() if "decisions" not in page.parts]
EVERY = pytest.mark.parametrize("module", PUBLIC.values(), ids=PUBLIC)


def code_of(page: Path) -> str:
    """Return the Python blocks of a page."""
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return "\n".join(blocks)


def path_of(module: str) -> Path:
    """Return where a module would be, without its suffix."""
    return ROOT / "src" / module.replace(".", "/")


def imported_by(code: str) -> set[str]:
    """Return the modules of ours that code imports from; a name of a public module is that module."""
    names = set()
    for node in ast.walk(parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = {f"{node.module}.{alias.name}" for alias in node.names} & {*PUBLIC, *ADAPTERS}
            names |= modules or {node.module}
    return {name for name in names if name.partition(".")[0] == "usechat"}


def test_the_public_names_are_pinned() -> None:
    """A name that is added, or gone, is a line of this file and of the CHANGELOG."""
    names = [f"{name}.{each}" for name, module in PUBLIC.items() for each in module.__all__]
    missing = tuple(f"{adapter}." for adapter in ADAPTERS if adapter not in PUBLIC)
    pinned = NAMES.read_text(encoding="utf-8").splitlines()
    assert [name for name in pinned if not name.startswith(missing)] == sorted(names)


@EVERY
def test_public_names_are_there_and_explained(module: ModuleType) -> None:
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    objects = {name: getattr(module, name) for name in module.__all__}
    routines = {
        name: member for name, member in objects.items() if inspect.isclass(member) or inspect.isroutine(member)
    }
    assert [name for name, member in routines.items() if not member.__doc__] == []


def unexplained(member: Any) -> list[str]:
    """Return the keyword arguments of a class or function of ours that its docstring does not name."""
    explained = inspect.getdoc(member) or ""
    if re.search(r"arguments\s+are\s+those\s+of\s+:(class|meth):", explained):  # they are explained there
        return []
    options = [option.name for option in inspect.signature(member).parameters.values() if option.kind is KEYWORD_ONLY]
    return [option for option in options if not re.search(rf"\b{option}\b", explained)]


@EVERY
def test_help_explains_every_keyword_argument(module: ModuleType) -> None:
    foreign = (enum.Enum, BaseException, logging.Formatter)  # these bring their own arguments
    objects = {name: getattr(module, name) for name in module.__all__}
    functions = {name: member for name, member in objects.items() if inspect.isroutine(member)}
    classes = {name: member for name, member in objects.items() if inspect.isclass(member)}
    own_classes = {name: member for name, member in classes.items() if not issubclass(member, (*foreign, dict))}
    missing = {name: unexplained(member) for name, member in (functions | own_classes).items()}
    assert {name: options for name, options in missing.items() if options} == {}


def methods_of(cls: type) -> dict[str, Any]:
    """Return the public methods that a class of ours defines itself."""
    named = {name: inspect.unwrap(getattr(cls, name)) for name in vars(cls) if not name.startswith("_")}
    return {name: each for name, each in named.items() if inspect.isroutine(each)}


def words_about(cls: type, method: str) -> set[str]:
    """Return the words of the docstrings of a class, and of a method in it and in its bases."""
    docs = [cls.__doc__, *(getattr(base, method, None).__doc__ for base in cls.__mro__)]
    return set(re.findall(r"\w+", " ".join(doc or "" for doc in docs)))


@EVERY
def test_help_explains_every_keyword_argument_of_a_method(module: ModuleType) -> None:
    """In the docstring of the method, of the method that it overrides, or of the class."""
    classes = {name: getattr(module, name) for name in module.__all__ if inspect.isclass(getattr(module, name))}
    missing = {
        f"{name}.{method}": [option for option in unexplained(each) if option not in words_about(cls, method)]
        for name, cls in classes.items()
        for method, each in methods_of(cls).items()
    }
    assert {name: options for name, options in missing.items() if options} == {}


def raised_by(function: Any) -> set[str]:
    """Return the names of our errors that the code of a function raises itself."""
    tree = parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = {each.func.id for each in raised if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    return calls & set(errors.__all__)


def functions_of(name: str, member: Any) -> dict[str, tuple[Any, str]]:
    """Return a public function, or the methods of a public class, each with what help() says about it."""
    if inspect.isfunction(member):
        return {name: (member, str(member.__doc__))}
    if not inspect.isclass(member) or issubclass(member, Exception):
        return {}
    methods = methods_of(member) | ({"__init__": vars(member)["__init__"]} if "__init__" in vars(member) else {})
    return {f"{name}.{method}": (each, f"{member.__doc__} {each.__doc__}") for method, each in methods.items()}


@EVERY
def test_help_names_the_errors_that_a_function_raises(module: ModuleType) -> None:
    described = [each for name in module.__all__ for each in functions_of(name, getattr(module, name)).items()]
    unnamed = {name: {error for error in raised_by(each) if error not in text} for name, (each, text) in described}
    assert {name: errors_of_function for name, errors_of_function in unnamed.items() if errors_of_function} == {}


@EVERY
def test_a_name_that_is_not_there_is_an_attribute_error(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documentation_imports_public_modules_only(page: Path) -> None:
    assert imported_by(code_of(page)) - {*PUBLIC, *ADAPTERS} == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_documentation_names_public_modules_only(page: Path) -> None:
    named = set(re.findall(r"`(usechat(?:\.[a-z0-9_]+)+)`", page.read_text(encoding="utf-8")))
    modules = {name for name in named if path_of(name).with_suffix(".py").exists() or path_of(name).is_dir()}
    assert modules - {*PUBLIC, *ADAPTERS, "usechat.adapters"} == set()  # usechat.adapters is a group of entry points


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example.relative_to(ROOT)))
def test_examples_import_public_modules_only(example: Path) -> None:
    assert imported_by(example.read_text(encoding="utf-8")) - {*PUBLIC, *ADAPTERS} == set()


def test_no_two_classes_of_the_package_share_a_name() -> None:
    """Private classes count, too: a traceback shows the name alone."""
    modules_by_class: dict[str, list[str]] = {}
    for module in sorted((ROOT / "src").rglob("*.py")):
        for node in nodes_of(module):
            if isinstance(node, ast.ClassDef):
                modules_by_class.setdefault(node.name, []).append(str(module.relative_to(ROOT / "src")))
    assert {name: modules for name, modules in modules_by_class.items() if len(modules) > 1} == {}


def test_only_public_classes_take_more_than_eight_parameters() -> None:
    """A constructor of an internal class that needs more lacks a value; the options of public ones have keywords."""
    public = {name.rpartition(".")[2] for name in NAMES.read_text(encoding="utf-8").splitlines()}
    crowded = {
        node.name: len(arguments)
        for module in sorted((ROOT / "src").rglob("*.py"))
        for node in nodes_of(module)
        if isinstance(node, ast.ClassDef) and node.name not in public
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if len(arguments := [*method.args.posonlyargs, *method.args.args[1:], *method.args.kwonlyargs]) > 8
    }
    assert crowded == {}

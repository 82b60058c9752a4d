import ast
import builtins
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import usechat
from tests.syntax_trees import nodes_of
from usechat import errors
from usechat.agent_ops import errors as session_errors
from usechat.errors import (
    InvalidChunk,
    InvalidMessages,
    InvalidRequest,
    LocalProtocolError,
    MissingDependency,
    ProtocolError,
    RequestError,
    RequestTooLarge,
    UnknownChunkType,
    UnknownRelease,
    UsechatError,
)
from usechat.open_harness import errors as flow_errors

pytestmark = [pytest.mark.core, pytest.mark.quick]

EXCEPTIONS = {
    name for name, member in vars(builtins).items() if inspect.isclass(member) and issubclass(member, BaseException)
}
MODULES = (errors, flow_errors, session_errors)
EXCEPTIONS |= {name for module in MODULES for name in module.__all__}

CLASSES = [getattr(module, name) for module in MODULES for name in module.__all__]


def needs_no_words(error: type[Exception]) -> bool:
    """Tell whether an error is a refusal with a sentence of its own."""
    own = vars(error).get("__init__")
    return issubclass(error, RequestError) and own is not None and len(inspect.signature(own).parameters) == 1


def drawn_tree(module: ModuleType) -> dict[str, str | None]:
    """Return each class that a module's docstring draws, with the one it hangs from."""
    tree = "UsechatError\n" + inspect.cleandoc(module.__doc__ or "").partition("\nUsechatError\n")[2]
    parents: dict[str, str | None] = {}
    branch: list[tuple[int, str]] = []
    for line in tree.splitlines():
        match = re.match(r"[ │├└─]*(\w+)", line)
        assert match, line
        branch = [(column, parent) for column, parent in branch if column < match.start(1)]
        parents[match[1]] = branch[-1][1] if branch else None
        branch.append((match.start(1), match[1]))
    return parents


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_tree_is_drawn_as_it_is(module: ModuleType) -> None:
    tree = drawn_tree(module)
    drawn = {name: getattr(module, name).__mro__[1].__name__ if name != "UsechatError" else None for name in tree}
    assert (tree, [name for name in module.__all__ if name not in tree]) == (drawn, [])


@pytest.mark.parametrize("refusal", [error for error in CLASSES if needs_no_words(error)])
def test_a_refusal_that_needs_no_words_has_a_sentence_and_a_status(refusal: type[RequestError]) -> None:
    assert re.fullmatch(r"[A-Z].*\.", str(refusal()))
    assert 400 <= refusal().status < 600


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_has_one_base(error: type[Exception]) -> None:
    assert issubclass(error, UsechatError)


def test_fields_say_which_chunk_is_to_blame() -> None:
    error = ProtocolError("text", chunk_type="text-delta", chunk_id="t")
    assert (str(error), error.chunk_type, error.chunk_id) == ("text", "text-delta", "t")
    assert (LocalProtocolError("text").chunk_type, LocalProtocolError("text").chunk_id) == (None, None)


def test_fields_say_where_the_fault_is() -> None:
    assert (InvalidChunk("text").path, UnknownChunkType("text", path="$.type").path) == ("$", "$.type")
    assert (InvalidMessages("text").path, InvalidMessages("text", path="messages[0]").path) == (
        "messages",
        "messages[0]",
    )


def test_request_errors_know_their_status() -> None:
    assert (InvalidRequest("text").status, RequestTooLarge("text").status) == (400, 413)


def test_errors_are_also_what_python_would_raise() -> None:
    assert issubclass(UnknownRelease, ValueError)
    assert issubclass(MissingDependency, ImportError)


def test_a_missing_dependency_comes_with_its_remedy() -> None:
    assert str(MissingDependency("redis", "redis")) == "redis is not installed; run: pip install 'usechat[redis]'"


def test_every_error_class_of_the_package_is_in_the_tree() -> None:
    """Private ones, which never leave their module, excepted; flows and agent sessions have trees of their own."""
    elsewhere = {
        node.name
        for module in Path(usechat.__file__).parent.rglob("*.py")
        if module.name != "errors.py"
        for node in nodes_of(module)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for base in node.bases
        if ast.unparse(base) in EXCEPTIONS
    }
    assert elsewhere == set()


def test_what_is_missing_from_an_installation_is_told_with_its_remedy() -> None:
    assert str(errors.LibraryMissing()).endswith("install usechat from a wheel or a checkout")
    assert str(errors.PageMissing()).endswith("`make page` builds it")


@pytest.mark.parametrize(
    ("error", "text", "fields"),
    [
        (errors.RequestRefused(status=500, body="", url="u"), "Failed to fetch the chat response.", {"status": 500}),
        (errors.RequestRefused(status=429, body="Wait.", url="u"), "Wait.", {"body": "Wait.", "url": "u"}),
        (errors.TooManyRequests("Wait.", retry_after=5), "Wait.", {"retry_after": 5}),
        (
            errors.TooManyWaiting(retry_after=1),
            "Too many messages are waiting for an answer. Please try again in a moment.",
            {"retry_after": 1},
        ),
        (errors.StoreUnreachable(), "The run store cannot be reached.", {}),
        (errors.ChatsUnreachable(), "The chat database cannot be reached.", {}),
        (flow_errors.Unreachable(), "The flow cannot be reached at the moment. Please try again later.", {}),
        (flow_errors.InvalidFlow("a.yaml", ["x"]), "a.yaml: 1 problem\n  x", {"problems": ("x",)}),
        (flow_errors.InvalidFlow("a.yaml", ["x", "y"]), "a.yaml: 2 problems\n  x\n  y", {"problems": ("x", "y")}),
        (flow_errors.AgentFailed("timeout", "Too slow."), "Too slow.", {"error_type": "timeout"}),
    ],
)
def test_errors_say_what_happened_and_have_fields(error: Exception, text: str, fields: dict[str, object]) -> None:
    assert (str(error), {name: getattr(error, name) for name in fields}) == (text, fields)

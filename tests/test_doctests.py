"""The examples in docstrings are run, over the whole package. A module whose extra is not installed is skipped."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import usechat
from usechat.errors import MissingDependency
from usechat.protocol import parts

PACKAGE = Path(usechat.__file__).parent
FILES = sorted(path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py"))
# Neither __main__ nor migrations can be imported: they are run.
MODULES = [
    ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    for path in FILES
    if path.stem != "__main__" and "migrations" not in path.parts
]

TAUGHT_BY_EXAMPLE = [
    "usechat.errors.PublicError",
    "usechat.protocol.message.MessageBuilder",
    *(f"usechat.protocol.parts.{name}" for name in parts.__all__ if isinstance(getattr(parts, name), type)),
    "usechat.protocol.request.ChatRequest",
    "usechat.protocol.sse.ChunkDecoder",
    "usechat.protocol.sse.FrameStream",
    "usechat.protocol.sse.encode_frame",
    "usechat.protocol.stream.MessageStream",
    "usechat.protocol.ui_messages.UIMessage",
    "usechat.protocol.validation.validate_messages",
]


def examples_in(module: str) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder().find(import_module(module)) if found.examples]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_are_true(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    try:
        found = examples_in(module)
    except ImportError as missing:
        if not isinstance(missing, MissingDependency) and (missing.name or "usechat").startswith("usechat"):
            raise
        pytest.skip(f"an extra is not installed: {missing}")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    told: list[str] = []
    failed = sum(runner.run(example, out=told.append).failed for example in found)
    assert not failed, "".join(told)


@pytest.mark.parametrize("name", TAUGHT_BY_EXAMPLE)
def test_a_public_name_has_an_example(name: str) -> None:
    assert name in [found.name for found in examples_in(name.rpartition(".")[0])]

"""The command `usechat types`: writes TypeScript types of what an agent says."""

import argparse
import asyncio
import contextlib
import inspect
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from usechat.errors import CannotLoad, InvalidSetting, UnusableFile
from usechat.sources import is_factory
from usechat.targets import describe, load_object
from usechat.typescript import ChatTypes, types_of, typescript

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Write TypeScript types of an agent's tools, data parts and metadata, for `useChat<ChatMessage>()`. They come from the
tools of an agent (LangGraph, OpenAI Agents, Pydantic AI, Agno, Claude Agent SDK, CrewAI, Google ADK, LlamaIndex,
Microsoft Agent Framework, Strands), and from what is registered with `usechat.typescript.chat_types`.
"""
_EPILOG: Final = """\
exit code: 0 if all is well, 1 with --check if the file is not up to date, 2 if the object has no types or cannot be
loaded.

examples:
  usechat types my_app:agent -o web/src/chat-types.ts
  usechat types my_app:agent -o web/src/chat-types.ts --check
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat types [options] OBJECT"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add(
        "target",
        metavar="OBJECT",
        help="MODULE:NAME or path/to/file.py:NAME of an agent, or of a function without arguments that makes one",
    )
    add("-o", dest="output", metavar="FILE", help="the file to write (default: standard output)")
    add("--check", action="store_true", help="write nothing, and report whether the file is up to date")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Write the types, or compare them with the file; return the exit code."""
    if options.check and options.output is None:
        raise InvalidSetting("--check compares a file with the types; name the file with -o")
    if "://" in options.target:
        raise CannotLoad(f"{options.target!r} is an address; types come from the agent's code: give MODULE:NAME")
    instance = load_object(options.target)
    types = types_of(instance)
    if types == ChatTypes() and is_factory(instance):
        types = asyncio.run(_types_from_factory(instance, options.target))
    if types == ChatTypes():
        raise CannotLoad(
            f"{options.target} has no types; register them with usechat.typescript.chat_types, or name an agent of"
            " a framework (`usechat types --help`) with tools"
        )
    text = typescript(types, source=f"usechat types {options.target}")
    if options.output is None:
        sys.stdout.write(text)
        return 0
    path = Path(options.output)
    try:
        if options.check:
            return _compare(path, text)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnusableFile(f"{path} cannot be used: {error.strerror}") from None
    return 0


async def _types_from_factory(factory: Callable[[], Any], name: str) -> ChatTypes:
    """Return the types of what a function without arguments makes, which `usechat serve` would serve."""
    try:
        agent = factory()
        if inspect.isawaitable(agent):
            agent = await agent
        if not isinstance(agent, contextlib.AbstractAsyncContextManager):
            return types_of(agent)
        async with agent as entered:
            return types_of(entered)
    except Exception as error:  # the code of the user may raise anything
        raise CannotLoad(f"{name} made no agent: {describe(error)}") from error


def _compare(path: Path, text: str) -> int:
    is_current = path.is_file() and path.read_text(encoding="utf-8") == text
    if not is_current:
        sys.stderr.write(f"usechat types: {path} is not up to date\n")
    return int(not is_current)

"""The command `usechat new`: writes a project to start from. It asks for what no option says."""

import argparse
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from usechat.errors import CannotStart, InvalidSetting
from usechat.starter.project import FRAMEWORKS, PAGES, write

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Write a project that runs at once: an agent with a tool that needs approval, tests without a key, stored chats,
sign-in, containers and CI. Works offline. Without an option, the command asks.
"""
_EPILOG: Final = """\
exit code: 0 if the project is written, 2 if it cannot be; the error says why.

examples:
  usechat new my-chat
  usechat new my-chat --framework langgraph --page next
"""

ChoiceT = TypeVar("ChoiceT", bound=str)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat new [options] DIRECTORY"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    add = parser.add_argument
    add("directory", metavar="DIRECTORY", type=Path, help="the directory of the project; its name is the project's")
    add("--framework", choices=FRAMEWORKS, metavar="NAME", help=f"the framework of the agent: {', '.join(FRAMEWORKS)}")
    add("--page", choices=PAGES, metavar="NAME", help=f"the page of the chat: {', '.join(PAGES)}")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Write the project, and say how it is run."""
    framework = options.framework or _ask("framework", "Which framework does the agent use?", FRAMEWORKS)
    page = options.page or _ask("page", "Which page does the chat have?", PAGES)
    files = write(options.directory, framework, page)
    sys.stdout.write(f"{options.directory}: {len(files)} files. README.md says how to run them:\n")
    readme = (options.directory / "README.md").read_text(encoding="utf-8")
    commands = readme.partition("```sh\n")[2].partition("```")[0]
    sys.stdout.write(f"\n  cd {options.directory}\n" + "".join(f"  {line}\n" for line in commands.splitlines()))
    return 0


def _ask(option: str, question: str, choices: Mapping[ChoiceT, str]) -> ChoiceT:
    """Return what the user chooses in a terminal; the first choice is the default."""
    names = list(choices)
    if not sys.stdin.isatty():
        raise InvalidSetting(f"nobody can be asked here; choose with --{option}: {', '.join(names)}")
    lines = [f"  {number}  {name:14} {choices[name]}\n" for number, name in enumerate(names, start=1)]
    sys.stdout.write("".join([f"{question}\n", *lines]))
    answers = {answer: name for number, name in enumerate(names, start=1) for answer in (str(number), name)}
    while True:
        try:
            answer = input("Number or name [1]: ").strip() or "1"
        except EOFError:
            raise CannotStart(f"no {option} was chosen, so nothing is written") from None
        if answer in answers:
            return answers[answer]

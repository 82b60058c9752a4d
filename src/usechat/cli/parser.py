"""The parser of a command: errors in one sentence, and help texts that fit 80 columns.

A command with many options shows the everyday ones in ``--help``, and all of them in ``--help-all``.

Texts are written with line breaks where the source needs them, and are filled again here. A line that begins with a
hyphen begins an item of a list. A line that begins with two spaces belongs to the item before it; without an item it
is an example, and stays as it is.
"""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn

__all__ = ["CommandParser"]

_NO_COMMAND: Final = "the following arguments are required: COMMAND"
"""What argparse says if a command is missing."""
_WIDTH: Final = 80


class CommandParser(argparse.ArgumentParser):
    """A parser that reports errors in one sentence, and whose help may begin with the everyday options."""

    def __init__(self, prog: str, usage: str, description: str = "", **options: Any) -> None:
        super().__init__(
            prog, usage=usage, description=description, formatter_class=_HelpFormatter, allow_abbrev=False, **options
        )
        self._everyday: Sequence[str] = ()

    def show_first(self, flags: Sequence[str]) -> None:
        """Show these options alone in ``--help``, and all of them in ``--help-all``, which is added."""
        self._everyday = flags
        self.add_argument("--help-all", action=_PrintAllHelp, nargs=0, help="show all options and exit")

    def format_help(self) -> str:
        """Return the text of ``--help``."""
        return self._format_everyday_help() if self._everyday else super().format_help()

    def format_all_help(self) -> str:
        """Return the text of ``--help-all``."""
        return super().format_help()

    def _format_everyday_help(self) -> str:
        by_flag = {flag: action for flag, action in self._option_string_actions.items() if flag.startswith("--")}
        everyday = [by_flag[flag] for flag in ("--help", "--help-all", *self._everyday)]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, actions in (
            ("positional arguments", self._get_positional_actions()),
            ("everyday options", everyday),
        ):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(f"{len(by_flag) - len(everyday)} more options: {self.prog} --help-all")
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what this command knows; refuse the rest here, so that the error names this command and its help."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hints = [hint for argument in unknown for hint in self._similar_options(argument)]
            hint = f"; did you mean {' '.join(hints)}? See" if hints else "; see"
            self.exit(2, f"{self.prog}: unrecognized arguments: {' '.join(unknown)}{hint} {self.prog} --help\n")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line; a command that lacks only its own command shows its help."""
        if message == _NO_COMMAND:
            self.print_help(sys.stderr)
            self.exit(2)
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def _similar_options(self, argument: str) -> list[str]:
        is_option = argument.startswith("--")
        return get_close_matches(argument.partition("=")[0], self._option_string_actions, 1) if is_option else []


class _PrintAllHelp(argparse.Action):
    """The option ``--help-all``: prints every option, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        if isinstance(parser, CommandParser):
            sys.stdout.write(parser.format_all_help())
        parser.exit()


class _HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs and items, and keeps examples."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, width=_WIDTH, max_help_position=26, **options)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_filled(line, width, indent) for line in _joined(text))


def _joined(text: str) -> list[str]:
    """Return each paragraph, item and example of a text as one line."""
    lines = list[str]()
    for line in text.strip("\n").splitlines():
        is_example = line.startswith("  ") and not (lines and lines[-1].startswith("-"))
        begins = not lines or not lines[-1] or not line or line.startswith("-") or is_example
        if begins or lines[-1].startswith("  "):
            lines.append(line)
        else:
            lines[-1] += f" {line.strip()}"
    return lines


def _filled(line: str, width: int, indent: str) -> str:
    if line.startswith("  "):
        return indent + line
    hanging = f"{indent}  " if line.startswith("-") else indent
    return textwrap.fill(
        line, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False
    )

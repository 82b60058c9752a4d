"""The command `usechat docs`: searches the documentation of this installation, and prints the best passages."""

import argparse
import sys
import textwrap
from argparse import Namespace
from typing import Final

from usechat.documentation import documentation, page_files, significant_words

__all__ = ["add_arguments", "run"]

_DESCRIPTION: Final = """\
Search the documentation of this installation, offline. Prints the passages that fit best, each with its file and
heading.
"""
_EPILOG: Final = """\
exit code: 0 if something is found, 1 if nothing is, 2 if the documentation is not in this installation.

examples:
  usechat docs stop button
  usechat docs "How does a page resume after a reload?"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "usechat docs [options] QUERY …"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("query", metavar="QUERY", nargs="+", help="what to search for: words, or a question")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the best passages; return 1 if there is none."""
    query = " ".join(options.query)
    passages = documentation().search(query)
    if not passages:
        sys.stderr.write(f"usechat: {_reason(query)}\n")
        return 1
    paths = page_files()
    quotes = [
        f"{passage.section.name}\n{paths[passage.section.page]}#{passage.section.id.partition('#')[2]}\n\n"
        f"{textwrap.indent(passage.excerpt, '  ')}\n"
        for passage in passages
    ]
    sys.stdout.write("\n".join(quotes))
    return 0


def _reason(query: str) -> str:
    words = significant_words(query)
    if not words:
        return f"{query!r} has no word to search for; give some, such as: stop button"
    return f"nothing in the documentation has most of the words: {', '.join(words)}; try other words"

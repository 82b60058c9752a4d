"""A Griffe extension: docstrings become the Markdown that the site renders.

Roles (``:class:`~usechat.Text```) become code, and examples (``>>>``) become fenced blocks.
"""

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(~?)([^`]+)`")
EXAMPLE = re.compile(r"^>>>.*\n?(?:.+\n?)*", re.MULTILINE)
DIRECTIVE = re.compile(r" *# doctest: .*")


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown; a leading ``~`` of a role shortens the name to its last part."""
    text = ROLE.sub(lambda match: f"`{match[2].rpartition('.')[2] if match[1] else match[2]}`", text)
    return EXAMPLE.sub(lambda match: f"```pycon\n{DIRECTIVE.sub('', match[0]).rstrip()}\n```\n", text)


class DocstringMarkdown(Extension):
    """Rewrite the docstring of each object that is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

"""What is in a new project: templates, and the traits that select them.

A project has traits: the framework of its agent, its page, and what follows from them. The directories below
``templates/`` are named after traits. A project gets the files of each directory whose trait it has. Within a file,
a line ``<% page-vite page-next %>`` begins lines for projects that have one of these traits, and ``<% end %>`` ends
them. ``<%= name %>`` is replaced by a value.

Every template ends in ``.template``, so that no tool takes it for a file of usechat's own.
"""

import re
from collections.abc import Iterator, Mapping, Set
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["rendered", "template_files"]

_SUFFIX: Final = ".template"
_LINES: Final = re.compile(r"^<% ([\w -]+) %>\n(.*?)^<% end %>\n", re.DOTALL | re.MULTILINE)
_WORDS: Final = re.compile(r"<% ([\w -]+) %>(.*?)<% end %>")
_VALUE: Final = re.compile(r"<%= (\w+) %>")


def template_files(traits: Set[str]) -> dict[str, str]:
    """Return the templates of a project with these traits, by the path of the file that each makes."""
    roots = (root for root in (files("usechat") / "starter" / "templates").iterdir() if root.name in traits)
    return dict(sorted(template for root in roots for template in _templates_in(root, "")))


def _templates_in(directory: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _templates_in(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry.read_text(encoding="utf-8")


def rendered(template: str, traits: Set[str], values: Mapping[str, str]) -> str:
    r"""Return the text of a template for a project with these traits and values.

    >>> rendered("<% page-next page-vite %>\nA page.\n<% end %>\n<%= name %>\n", {"page-vite"}, {"name": "my-chat"})
    'A page.\nmy-chat\n'
    >>> rendered("<% page-next %>\nA page.\n<% end %>\n<%= name %>\n", {"page-vite"}, {"name": "my-chat"})
    'my-chat\n'
    """

    def chosen(match: re.Match[str]) -> str:
        return match[2] if not traits.isdisjoint(match[1].split()) else ""

    text = _WORDS.sub(chosen, _LINES.sub(chosen, template))
    return _VALUE.sub(lambda match: values[match[1]], text)

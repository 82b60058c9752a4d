"""The guides as the demo serves them: their links lead to what it serves."""

import posixpath
import re
from collections.abc import Mapping

from usechat.documentation import documentation, replace_links

__all__ = ["served_pages", "served_text"]


def served_pages() -> Mapping[str, str]:
    """Return the guides by the paths at which they are served."""
    return {f"/docs/{name}": served_text(name, text) for name, text in documentation().pages.items()}


def served_text(page: str, text: str) -> str:
    """Return a text of a page with links relative to the chat page.

    Images are left out, and links to files that are not served become their text.

    >>> served_text("resume.md", "See [tools](tools.md#approvals), [the code](../src) and ![a picture](a.png).")
    'See [tools](docs/tools.md#approvals), the code and .'
    """
    directory = posixpath.dirname(page if page == "README.md" else f"docs/{page}")

    def rewrite(match: re.Match[str]) -> str:
        if match["image"] or "://" in match["target"]:
            return "" if match["image"] else match[0]
        path, _, fragment = match["target"].partition("#")
        name = posixpath.normpath(posixpath.join(directory, path)).removeprefix("docs/") if path else page
        anchor = f"#{fragment}" if fragment else ""
        return f"[{match['label']}](docs/{name}{anchor})" if name in documentation().pages else match["label"]

    return replace_links(text, rewrite)

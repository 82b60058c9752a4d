"""The guides as the demo serves them."""

import re

import pytest

from usechat.demo.pages import served_pages, served_text
from usechat.documentation import documentation


def prose(text: str) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("page", "text", "served"),
    [
        ("README.md", "[a](docs/rules.md#uc101)", "[a](docs/rules.md#uc101)"),
        ("auth.md", "[a](../README.md)", "[a](docs/README.md)"),
        ("auth.md", "[a](#top)", "[a](docs/auth.md#top)"),
        ("frameworks/langgraph.md", "[a](../adapters.md)", "[a](docs/adapters.md)"),
        ("auth.md", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("auth.md", "[a](../examples/chat_app.py)", "a"),
        ("auth.md", "![a](images/a.png)", ""),
        ("auth.md", "```\n[a](rules.md)\n```", "```\n[a](rules.md)\n```"),
    ],
    ids=["README", "up", "the same page", "a folder", "the web", "a file that is not served", "an image", "code"],
)
def test_links_lead_to_what_is_served(page: str, text: str, served: str) -> None:
    assert served_text(page, text) == served


def test_each_link_of_a_page_leads_to_a_page_or_to_the_web() -> None:
    pages = served_pages()
    links = [link for text in pages.values() for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text))]
    assert [link for link in links if "://" not in link and f"/{link.partition('#')[0]}" not in pages] == []
    assert len(links) > len(pages) == len(documentation().pages)

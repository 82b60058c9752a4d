"""The tool of the agent that answers questions about usechat."""

from usechat import current_turn
from usechat.documentation import documentation
from usechat.parts import SourceUrl

__all__ = ["search_docs"]


def search_docs(query: str) -> list[dict[str, str]]:
    """Search the documentation of usechat; returns the best passages with their links, or none."""
    passages = [
        {"section": passage.section.name, "link": f"docs/{passage.section.id}", "text": passage.excerpt}
        for passage in documentation().search(query)
    ]
    for passage in passages:
        current_turn().send(SourceUrl(f"source-{passage['link']}", passage["link"], passage["section"]))
    return passages

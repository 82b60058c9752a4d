"""What the demo serves."""

import os
from collections.abc import Mapping
from typing import Any, Final

from pydantic_ai import Agent

from usechat.adapters.pydantic_ai import PydanticAISource
from usechat.demo.models import MODEL_VARIABLE, SCRIPT, model_for
from usechat.demo.pages import served_pages
from usechat.demo.show import PACE, SCENES, Show
from usechat.demo.tools import search_docs
from usechat.transports import TurnContext

__all__ = ["SUGGESTIONS", "TITLE", "Guide", "describe", "guide"]

TITLE: Final = "usechat demo"
SUGGESTIONS: Final = (f"Watch an answer | {next(iter(SCENES))}",)
_INSTRUCTIONS: Final = """\
You answer questions about usechat from its documentation. Search with search_docs. Answer from the passages that it
returns, in a few sentences, and cite each passage that you use as a link, such as
[Resume and stop: Resume](docs/resume.md#resume). If it returns none that answers, say "I found nothing about that in
the documentation."
"""


def describe(model: str) -> str:
    """Return what the page says about the demo: who answers, too."""
    answering = "offline, by a script" if model == SCRIPT else f"by {model}"
    return f"Watch what a chat can do, scene by scene. Or ask about usechat: its documentation answers, {answering}."


class Guide:
    """Answers a scene of the show, and any other message from the documentation; the page links to its guides."""

    def __init__(self, model: Any, *, pace: float = PACE) -> None:
        self._show = Show(pace)
        self._agent = PydanticAISource(Agent(model, instructions=_INSTRUCTIONS, tools=[search_docs]))

    async def drive(self, context: TurnContext) -> None:
        """Answer a turn: a scene of the show, or a question."""
        source = self._show if self._show.plays(context.turn) else self._agent
        await source.drive(context)

    @property
    def page_files(self) -> Mapping[str, str]:
        """The documentation, by path."""
        return served_pages()


guide: Final = Guide(model_for(os.environ.get(MODEL_VARIABLE, SCRIPT)))

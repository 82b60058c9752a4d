"""What the demo serves."""

import os
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from typing import Final

from usechat.demo.models import MODEL_VARIABLE, SCRIPT, registry_for
from usechat.demo.pages import served_pages
from usechat.demo.tour import PACE, STEPS, Tour
from usechat.open_harness import FlowRuntime, NodeRegistry, OpenHarnessChatTransport, load_flow
from usechat.transports import TurnContext

__all__ = ["SUGGESTIONS", "TITLE", "Guide", "describe", "guide"]

TITLE: Final = "usechat demo"
SUGGESTIONS: Final = (
    *STEPS,
    "How does a page resume after a reload?",
    "How do I store chats in a database?",
)


def describe(model: str) -> str:
    """Return what the page says about the demo: who answers, too."""
    answering = (
        "Offline: a script, not a model." if model == SCRIPT else f"The answers are by {model}, the tour is a script."
    )
    return f"A tour of what a chat can show, and answers about usechat from its documentation. {answering}"


class Guide(OpenHarnessChatTransport):
    """The flow that answers, the tour, and the pages that it cites: the chat page links to them."""

    def __init__(self, registry: NodeRegistry, *, pace: float = PACE) -> None:
        self._tour = Tour(registry, pace)
        flow = load_flow((files("usechat") / "demo" / "flow.yaml").read_text(encoding="utf-8"), registry=registry)
        super().__init__(partial(FlowRuntime, flow, registry=registry), send_flow_metadata=True)

    async def drive(self, context: TurnContext) -> None:
        """Answer a turn: a step of the tour, or a question."""
        if self._tour.answers(context.turn):
            await self._tour.drive(context)
        else:
            await super().drive(context)

    @property
    def page_files(self) -> Mapping[str, str]:
        """The documentation, by path."""
        return served_pages()


guide: Final = Guide(registry_for(os.environ.get(MODEL_VARIABLE, SCRIPT)))

"""What the demo serves."""

import os
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from typing import Final

from usechat.demo.library import library
from usechat.demo.models import MODEL_VARIABLE, SCRIPT, registry_for
from usechat.demo.tour import PACE, STEPS, Tour
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.flow.reading import load_flow
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.transport import OpenHarnessChatTransport
from usechat.server.site import Site
from usechat.turn import TurnContext

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
        return {f"/docs/{name}": text for name, text in library().pages.items()}

    @property
    def site(self) -> Site | None:
        """The site of the documentation, if it was built: `make demo` and `make wheel` do that."""
        built = files("usechat") / "demo" / "site"
        return Site(built) if (built / "versions.json").is_file() else None


guide: Final = Guide(registry_for(os.environ.get(MODEL_VARIABLE, SCRIPT)))

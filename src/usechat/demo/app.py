"""What the demo serves."""

import os
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from typing import Final

from usechat.demo.library import library
from usechat.demo.models import MODEL_VARIABLE, SCRIPT, registry_for
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.flow.reading import load_flow
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.transport import OpenHarnessChatTransport

__all__ = ["SUGGESTIONS", "TITLE", "Guide", "guide"]

TITLE: Final = "the usechat guide"
SUGGESTIONS: Final = (
    "How does a page resume after a reload?",
    "What is (17 + 4) * 2?",
    "What is the weather in Lisbon?",
    "Please delete my notes",
)


class Guide(OpenHarnessChatTransport):
    """The flow that answers, and the pages that it cites: the chat page links to them."""

    def __init__(self, registry: NodeRegistry) -> None:
        flow = load_flow((files("usechat") / "demo" / "flow.yaml").read_text(encoding="utf-8"), registry=registry)
        super().__init__(partial(FlowRuntime, flow, registry=registry), send_flow_metadata=True)

    @property
    def page_files(self) -> Mapping[str, str]:
        """The documentation, by path."""
        return {f"/docs/{name}": text for name, text in library().pages.items()}


guide: Final = Guide(registry_for(os.environ.get(MODEL_VARIABLE, SCRIPT)))

"""Genkit flows, prompts and agents as AI SDK chats.

:class:`GenkitChatTransport` answers with a flow at a URL or in this process; the ``…_input`` functions make the input
of a flow from a turn. ``docs/genkit.md`` has the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from usechat.genkit.adapter import GenkitAdapter
    from usechat.genkit.approvals import Approval, Respond, Restart, respond_to
    from usechat.genkit.inputs import (
        FlowInput,
        agent_input,
        history_input,
        mapped_input,
        messages_input,
        session_id,
        stateless_agent_input,
        text_input,
    )
    from usechat.genkit.transport import GenkitChatTransport
    from usechat.genkit.wire import FlowChunk, FlowFailure, FlowResult

__all__ = [
    "Approval",
    "FlowChunk",
    "FlowFailure",
    "FlowInput",
    "FlowResult",
    "GenkitAdapter",
    "GenkitChatTransport",
    "Respond",
    "Restart",
    "agent_input",
    "history_input",
    "mapped_input",
    "messages_input",
    "respond_to",
    "session_id",
    "stateless_agent_input",
    "text_input",
]

# Imported on use: `usechat serve --help` loads the kind in this package, which must be fast.
_HOMES: Final = {
    "Approval": "approvals",
    "FlowChunk": "wire",
    "FlowFailure": "wire",
    "FlowResult": "wire",
    "GenkitAdapter": "adapter",
    "GenkitChatTransport": "transport",
    "Respond": "approvals",
    "Restart": "approvals",
    "respond_to": "approvals",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'inputs')}"), name)

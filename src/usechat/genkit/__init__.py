"""Genkit flows, prompts and agents as AI SDK chats.

:class:`GenkitChatTransport` answers with a flow at a URL or in this process; the ``…_input`` functions make the input
of a flow from a turn. ``docs/genkit.md`` has the rest.
"""

from typing import TYPE_CHECKING, Final

from usechat.lazy import lazy_names

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
    "Approval": "usechat.genkit.approvals",
    "FlowChunk": "usechat.genkit.wire",
    "FlowFailure": "usechat.genkit.wire",
    "FlowInput": "usechat.genkit.inputs",
    "FlowResult": "usechat.genkit.wire",
    "GenkitAdapter": "usechat.genkit.adapter",
    "GenkitChatTransport": "usechat.genkit.transport",
    "Respond": "usechat.genkit.approvals",
    "Restart": "usechat.genkit.approvals",
    "agent_input": "usechat.genkit.inputs",
    "history_input": "usechat.genkit.inputs",
    "mapped_input": "usechat.genkit.inputs",
    "messages_input": "usechat.genkit.inputs",
    "respond_to": "usechat.genkit.approvals",
    "session_id": "usechat.genkit.inputs",
    "stateless_agent_input": "usechat.genkit.inputs",
    "text_input": "usechat.genkit.inputs",
}

__getattr__ = lazy_names(__name__, _HOMES)

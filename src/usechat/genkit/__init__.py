"""Genkit flows, prompts and agents as AI SDK chats.

:class:`GenkitChatTransport` answers with a flow at a URL or in this process; the ``…_input`` functions make the input
of a flow from a turn. ``docs/genkit.md`` has the rest.
"""

from usechat.genkit.adapter import GenkitAdapter
from usechat.genkit.approvals import Approval, Respond, Restart
from usechat.genkit.inputs import (
    FlowInput,
    agent_input,
    history_input,
    messages_input,
    session_id,
    stateless_agent_input,
    text_input,
)
from usechat.genkit.transport import GenkitChatTransport

__all__ = [
    "Approval",
    "FlowInput",
    "GenkitAdapter",
    "GenkitChatTransport",
    "Respond",
    "Restart",
    "agent_input",
    "history_input",
    "messages_input",
    "session_id",
    "stateless_agent_input",
    "text_input",
]

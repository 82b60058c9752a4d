"""Genkit flows, prompts and agents as something that answers a chat."""

from usechat.genkit.adapter import GenkitAdapter
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
    "FlowInput",
    "GenkitAdapter",
    "GenkitChatTransport",
    "agent_input",
    "history_input",
    "messages_input",
    "session_id",
    "stateless_agent_input",
    "text_input",
]

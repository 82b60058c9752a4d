"""The interface for packages that bring a transport: an agent behind a protocol, which is driven turn by turn.

A transport has a coroutine ``drive(context)``. It gets the turn as a :class:`TurnContext`, writes parts with
``context.send``, returns at the end, and raises on failure. ``usechat serve``, ``ChatApp`` and ``chat_response`` take
it as an agent:

.. code-block:: python

    class Parrots:
        async def drive(self, context):
            context.send(Text(f"Polly says {context.turn.text}"))

:class:`RunChatTransport` makes a chat transport of it, with the two methods of the AI SDK's ``ChatTransport``.
"""

from typing import TYPE_CHECKING, Final

from usechat.lazy import lazy_names

if TYPE_CHECKING:
    from usechat.certificates import verification
    from usechat.pauses.questions import PAUSE_IS_GONE
    from usechat.protocol.chunks import Chunk
    from usechat.protocol.request import ApprovalAnswer, ToolOutput
    from usechat.protocol.sse import EventDecoder
    from usechat.runs.transport import RunChatTransport
    from usechat.sources import FunctionSource
    from usechat.turn import WAIT_SECONDS, TurnContext, TurnInput, current_context, yield_once

__all__ = [
    "PAUSE_IS_GONE",
    "WAIT_SECONDS",
    "ApprovalAnswer",
    "Chunk",
    "EventDecoder",
    "FunctionSource",
    "RunChatTransport",
    "ToolOutput",
    "TurnContext",
    "TurnInput",
    "current_context",
    "verification",
    "yield_once",
]

# Imported on use: most transports need no runs.
_HOMES: Final = {
    "PAUSE_IS_GONE": "usechat.pauses.questions",
    "WAIT_SECONDS": "usechat.turn",
    "ApprovalAnswer": "usechat.protocol.request",
    "Chunk": "usechat.protocol.chunks",
    "EventDecoder": "usechat.protocol.sse",
    "FunctionSource": "usechat.sources",
    "RunChatTransport": "usechat.runs.transport",
    "ToolOutput": "usechat.protocol.request",
    "TurnContext": "usechat.turn",
    "TurnInput": "usechat.turn",
    "current_context": "usechat.turn",
    "verification": "usechat.certificates",
    "yield_once": "usechat.turn",
}

__getattr__ = lazy_names(__name__, _HOMES)

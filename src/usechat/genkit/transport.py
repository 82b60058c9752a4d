"""A Genkit flow or agent as something that answers a chat, wherever it lives."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any, Final, Protocol

from usechat.genkit.adapter import GenkitAdapter, Interrupts, Mapper
from usechat.genkit.errors import describe
from usechat.genkit.history import known_calls, resume_of
from usechat.genkit.inputs import FlowInput, InputBuilder
from usechat.genkit.wire import Event
from usechat.ids import new_id
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.runs.transport import RunChatTransport
from usechat.sources import AdapterSource
from usechat.turn import Turn, TurnContext

__all__ = ["PASSED_ON", "GenkitChatTransport"]

PASSED_ON: Final = ("accept-language", "authorization", "traceparent", "tracestate", "x-request-id")
"""Headers of the page's request that a Genkit server gets to see."""


class Flow(Protocol):
    """Where a flow runs."""

    @property
    def default_input(self) -> InputBuilder:
        """What makes its input, if nobody says otherwise."""
        ...

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[Event, None]:
        """Run the flow and yield what it says. Closing the iterator stops the flow."""
        ...


class GenkitChatTransport:
    """Answers with a Genkit flow: at a URL such as ``http://127.0.0.1:3400/chatFlow``, or a Python ``genkit`` object.

    ``build_input`` makes the flow's input of the turn: by default ``{message, conversationHistory}`` for a URL, and
    what its schema asks for of an object. ``headers`` are sent with every request; ``pass_on`` names those of the
    page's request that go along. The others are those of :class:`~usechat.genkit.adapter.GenkitAdapter`; ``sdk`` is
    the AI SDK release that :meth:`send_messages` answers for.
    """

    def __init__(
        self,
        flow: Any,
        *,
        build_input: InputBuilder | None = None,
        headers: Mapping[str, str] | None = None,
        pass_on: Iterable[str] = PASSED_ON,
        map_chunk: Mapper | None = None,
        map_result: Mapper | None = None,
        send_data: bool = False,
        interrupts: Interrupts = "tool",
        sdk: str = "any",
    ) -> None:
        self._flow = _flow_of(flow, headers or {}, pass_on)
        self._build_input = build_input or self._flow.default_input
        self._map_chunk = map_chunk
        self._map_result = map_result
        self._send_data = send_data
        self._interrupts: Interrupts = interrupts
        self._runs = RunChatTransport(self, sdk=sdk)

    async def drive(self, context: TurnContext) -> None:
        """Answer the turn; the flow is stopped in this task if the turn is."""
        await AdapterSource(self._run, lambda: self._adapter(context)).drive(context)

    def _run(self, turn: Turn) -> AsyncGenerator[Event, None]:
        return self._flow.run(self._build_input(turn), turn)

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request. Closing the iterator stops the flow before ``aclose`` returns."""
        return await self._runs.send_messages(request)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the answer that is being given, from its start, or nothing."""
        return await self._runs.reconnect_to_stream(chat_id)

    def _adapter(self, context: TurnContext) -> GenkitAdapter:
        turn = context.turn
        resume = resume_of(turn)
        return GenkitAdapter(
            new_id=new_id,
            map_chunk=self._map_chunk,
            map_result=self._map_result,
            send_data=self._send_data,
            interrupts=self._interrupts,
            known=known_calls(turn),
            denied=resume.denied if resume else (),
            describe=describe,
            on_unknown=context.event_unknown,
        )


def _flow_of(flow: Any, headers: Mapping[str, str], pass_on: Iterable[str]) -> Flow:
    if isinstance(flow, str):
        from usechat.genkit.remote import RemoteFlow

        return RemoteFlow(flow, headers=headers, pass_on=pass_on)
    from usechat.genkit.local import local_flow

    return local_flow(flow)

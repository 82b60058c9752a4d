"""A chat transport for a Genkit flow or agent, on a server or in this process."""

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Container, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final, Protocol, cast

from usechat import AdapterSource, ChatRequest, Turn
from usechat.errors import InvalidSetting
from usechat.genkit.adapter import GenkitAdapter, Interrupts, Mapper
from usechat.genkit.approvals import MapApproval
from usechat.genkit.errors import describe
from usechat.genkit.history import known_calls, resume_of
from usechat.genkit.inputs import AsyncInputBuilder, FlowInput, InputBuilder, restarted_tools
from usechat.genkit.wire import FlowEvent
from usechat.ids import new_id
from usechat.server import Settings
from usechat.transports import Chunk, RunChatTransport, TurnContext

__all__ = ["PASSED_ON", "FlowRunner", "GenkitChatTransport", "source_of"]

_logger: Final = logging.getLogger("usechat.genkit")

PASSED_ON: Final = ("accept-language", "traceparent", "tracestate", "x-request-id")
"""The headers of the page's request that are passed on to a Genkit server by default.

``authorization`` is not among them: that token is meant for usechat.
"""


class FlowRunner(Protocol):
    """Runs a flow, on a server or in this process."""

    @property
    def default_input(self) -> InputBuilder | AsyncInputBuilder:
        """The builder of its input, unless the caller names another."""
        ...

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[FlowEvent, None]:
        """Run the flow and yield its events. Closing the iterator stops the flow."""
        ...


class GenkitChatTransport:
    """Answers a chat with a Genkit flow, prompt or agent. It is a source and a chat transport.

    Args:
        flow: a URL such as ``http://127.0.0.1:3400/chatFlow``, or an object of the Python package ``genkit``.
        build_input: makes the flow's input from the turn, now or as an awaitable; by default it is the builder that
            fits the schema, and :func:`history_input` for a URL without ``reflection``.
        reflection: the address of Genkit's reflection server, such as ``http://127.0.0.1:3100``, which tells the schema
            of the flow at a URL.
        headers: sent with every request to a server.
        pass_on: the headers of the page's request that are passed on.
        idle_timeout: how many seconds a durable stream may be silent after its connection broke.
        show_public_errors: show people the text of a server's errors whose status is not ``INTERNAL``.
        map_chunk, map_result, send_data, interrupts: those of :class:`GenkitAdapter`.
        map_approval: says how an approved or denied call is resumed; by default the tool is restarted with
            ``resumed: {approved: bool, reason?}``. ``build_input`` is then called with ``map_approval`` as a keyword,
            too.
        sdk: the AI SDK release for :meth:`send_messages`; a server has its own setting.

    Raises:
        InvalidAddress: a URL of another kind.
        CannotAnswer: an object that is no flow, or whose input cannot be made from a chat.
        InvalidSetting: a ``map_approval`` that ``build_input`` does not take.

    >>> from usechat.genkit import messages_input
    >>> from usechat.server import ChatApp
    >>> app = ChatApp(GenkitChatTransport("http://127.0.0.1:3400/chatFlow", build_input=messages_input))
    """

    def __init__(
        self,
        flow: Any,
        *,
        build_input: InputBuilder | AsyncInputBuilder | None = None,
        headers: Mapping[str, str] | None = None,
        pass_on: Iterable[str] = PASSED_ON,
        idle_timeout: float | None = 120,
        show_public_errors: bool = False,
        map_chunk: Mapper | None = None,
        map_result: Mapper | None = None,
        send_data: bool = False,
        interrupts: Interrupts = "tool",
        map_approval: MapApproval | None = None,
        reflection: str | None = None,
        sdk: str = "any",
    ) -> None:
        self._describe = partial(describe, show_public=show_public_errors)
        if isinstance(flow, str):
            self._flow: FlowRunner = _remote_flow(
                flow,
                headers=headers or {},
                pass_on=pass_on,
                idle_timeout=idle_timeout,
                show_public=show_public_errors,
                reflection=reflection,
            )
        else:
            self._flow = _local_flow(flow)
        self._build_input = _with_approvals(build_input or self._flow.default_input, map_approval)
        self._map_chunk = map_chunk
        self._map_result = map_result
        self._send_data = send_data
        self._interrupts: Interrupts = interrupts
        self._runs = RunChatTransport(self, settings=Settings(sdk=sdk))

    async def drive(self, context: TurnContext) -> None:
        """Answer the turn. The flow is stopped in this task if the turn is."""
        restarted: set[str] = set()
        adapter = self._adapter(context.turn, restarted)
        try:
            await AdapterSource(partial(self._run, restarted), lambda: adapter).drive(context)
        finally:
            for name in adapter.answered_denials:
                _warn_of_denied_tool(name)

    async def _run(self, restarted: set[str], turn: Turn) -> AsyncGenerator[FlowEvent, None]:
        """Run the flow; add the names of the tools that it runs again."""
        built = self._build_input(turn)
        flow_input = built if isinstance(built, FlowInput) else await built
        restarted.update(restarted_tools(flow_input))
        return self._flow.run(flow_input, turn)

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request. Closing the iterator stops the flow before ``aclose`` returns."""
        return await self._runs.send_messages(request)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the running answer of a chat from its start, or ``None``."""
        return await self._runs.reconnect_to_stream(chat_id)

    def _adapter(self, turn: Turn, restarted: Container[str]) -> GenkitAdapter:
        resume = resume_of(turn)
        return GenkitAdapter(
            new_id=new_id,
            map_chunk=self._map_chunk,
            map_result=self._map_result,
            send_data=self._send_data,
            interrupts=self._interrupts,
            known=known_calls(turn),
            denied=resume.denied if resume else (),
            restarted=restarted,
            describe=self._describe,
        )


@cache
def _warn_of_denied_tool(name: str) -> None:
    """Log, once per tool, that it returned an output after it was denied."""
    _logger.warning(
        "the tool %s was denied and returned an output: it was run again with resumed.approved = false. If it did its"
        " work then, let it test resumed.approved, not only resumed",
        name,
    )


def _with_approvals(
    build_input: InputBuilder | AsyncInputBuilder, map_approval: MapApproval | None
) -> InputBuilder | AsyncInputBuilder:
    if map_approval is None:
        return build_input
    if "map_approval" not in inspect.signature(build_input).parameters:
        raise InvalidSetting(
            "map_approval needs an input that resumes interrupted tools, such as messages_input or agent_input"
        )
    return cast("InputBuilder", partial(build_input, map_approval=map_approval))  # type: ignore[call-arg]


def source_of(flow: Any) -> GenkitChatTransport | None:
    """Return the source of a Genkit object, or ``None`` if the object cannot answer. An entry point names this."""
    from usechat.genkit.local import can_answer

    return GenkitChatTransport(flow) if can_answer(flow) else None


def _remote_flow(url: str, **options: Any) -> FlowRunner:
    from usechat.genkit.remote import RemoteFlow

    return RemoteFlow(url, **options)


def _local_flow(flow: Any) -> FlowRunner:
    from usechat.genkit.local import local_flow

    return local_flow(flow)

"""The content of Genkit's messages as parts: text, reasoning, tools, media, data; and where steps start.

A chunk may be *aggregated*: it holds the whole message so far instead of what is new. And Genkit sends tool requests
once more when it knows their outcome or interrupts them. :class:`StreamedContent` remembers what was streamed of the
current message, so that both yield only what is new.
"""

import mimetypes
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from usechat import parts
from usechat.genkit.tool_requests import ToolRequest, ToolRequests
from usechat.values import json_text, json_value

__all__ = [
    "ContentReader",
    "JsonObject",
    "StreamedContent",
]

JsonObject: TypeAlias = Mapping[str, Any]

_KINDS: Final = ("text", "reasoning", "toolRequest", "toolResponse", "media", "data", "resource", "custom")
_OUTCOMES: Final = {"interrupt", "pendingOutput"}
_BY_ORDER: Final = {"genkit": {"matchedBy": "order"}}
"""The ``toolMetadata`` of an output that may belong to a parallel call of the same name."""
_DENIED: Final = {"genkit": {"outputAfterDenial": True}}
"""The ``toolMetadata`` of what the tool of a denied call returned."""


class StreamedContent:
    """The content of one message that was streamed so far."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"text": [], "reasoning": []}
        self._others: list[Mapping[str, Any]] = []

    def add(self, part: Mapping[str, Any]) -> None:
        """Remember a content part."""
        for kind in self._texts:
            if isinstance(part.get(kind), str):
                self._texts[kind].append(part[kind])
                return
        self._others.append(part)

    def new_in(self, content: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield what the whole message holds beyond what was streamed; a text that differs is yielded as a whole."""
        texts = {kind: "".join(pieces) for kind, pieces in self._texts.items()}
        others = list(self._others)
        for part in content:
            kind = next((kind for kind in texts if isinstance(part.get(kind), str)), None)
            if kind is None:
                if part in others:
                    others.remove(part)
                else:
                    yield part
                continue
            text, streamed = part[kind], texts[kind]
            if streamed.startswith(text):
                texts[kind] = streamed[len(text) :]
            else:
                texts[kind] = ""
                yield {**part, kind: text.removeprefix(streamed)}


class ContentReader:
    """Turns the chunks of one generation into parts: model messages and tool messages, each with its index.

    ``has_unknown`` is set when a part of the content is not known; that part is skipped. ``restarted`` are the names of
    tools that were run again after a person's answer. A denied one should do nothing then, but nothing on the wire
    tells whether it did. What it returned is told to the model, so it is shown: as a separate call, because no release
    allows an output beside a denial. The page does not say that the tool ran. ``answered_denials`` are the names of
    such tools.
    """

    def __init__(
        self,
        calls: ToolRequests,
        *,
        send_data: bool,
        approvals: bool,
        denied: Container[str],
        restarted: Container[str],
    ) -> None:
        self.has_unknown = False
        self.answered_denials: list[str] = []
        self._calls = calls
        self._send_data = send_data
        self._approvals = approvals
        self._denied = denied
        self._restarted = restarted
        self._role: str | None = None
        self._index: Any = None
        self._streamed = StreamedContent()

    @property
    def ends_in_tools(self) -> bool:
        """Whether the last message came from tools."""
        return self._role == "tool"

    def chunk(self, chunk: JsonObject) -> Iterator[parts.Part]:
        """Yield the parts of a ``ModelResponseChunk``."""
        items = chunk.get("content")
        content = [part for part in items if isinstance(part, Mapping)] if isinstance(items, list) else []
        yield from self._start_message(chunk, content)
        fresh = self._streamed.new_in(content) if chunk.get("aggregated") is True else content
        restated = []
        for part in fresh:
            self._streamed.add(part)
            if self._is_restated(part):
                restated.append(part)
            else:
                yield from self.part(part)
        if restated:
            yield from self.restate(restated)
        if self._send_data and chunk.get("custom"):
            yield parts.Data("genkit-custom", chunk["custom"])

    def not_streamed(self, content: Iterable[JsonObject]) -> Iterator[JsonObject]:
        """Yield what the complete last message holds beyond what was streamed of it."""
        return self._streamed.new_in(content)

    def part(self, part: JsonObject) -> Iterator[parts.Part]:
        """Yield the parts of one content part."""
        kind = next((kind for kind in _KINDS if part.get(kind) is not None), None)
        value = part.get(kind or "")
        match kind, value:
            case "text", str():
                yield from self._text(parts.Text, part, value)
            case "reasoning", str():
                yield from self._text(parts.Reasoning, part, value)
            case "toolRequest", Mapping():
                yield from self._request(value, part)
            case "toolResponse", Mapping():
                yield from self._response(value, _metadata(part))
            case "media", Mapping() if isinstance(value.get("url"), str):
                yield parts.File(value["url"], _media_type(value))
            case (("data" | "resource" | "custom"), _):
                if self._send_data:
                    yield parts.Data(f"genkit-{kind}", value)
            case _ if part.keys() - {"metadata"}:
                self.has_unknown = True

    def restate(self, requests: Sequence[JsonObject]) -> Iterator[parts.Part]:
        """Yield the outcome of requests that Genkit sends once more: some have an output, some are interrupted.

        Beside an interrupted one, all others have run. JavaScript omits the output of a tool that returned nothing.
        """
        calls = self._calls.restated(requests)
        has_interrupt = any("interrupt" in _metadata(part) for part in requests)
        for part, call in zip(requests, calls, strict=True):
            metadata = _metadata(part)
            if not call.complete:
                yield from self._call(call, part)
            if "interrupt" in metadata:
                yield from self._interrupted(call, part)
            elif not call.has_response and (has_interrupt or "pendingOutput" in metadata):
                call.has_response = True
                yield parts.ToolResult(call.id, metadata.get("pendingOutput"))

    def _interrupted(self, call: ToolRequest, part: JsonObject) -> Iterator[parts.Part]:
        if call.has_progress:  # it would become the tool's output
            call.has_progress = False
            yield parts.ToolCall(call.id, call.name, call.input or {}, retracts_output=True)
        if self._approvals and not call.has_approval_request:
            call.has_approval_request = True
            yield parts.ApprovalRequest(self._calls.new_id(), call.id, _reason(_metadata(part)["interrupt"]))

    def _is_restated(self, part: JsonObject) -> bool:
        """Tell whether a part reports the outcome of a request. Agents of JavaScript stream them in a tool message."""
        is_outcome = self._role == "tool" or bool(_metadata(part).keys() & _OUTCOMES)
        return isinstance(part.get("toolRequest"), Mapping) and is_outcome

    def _start_message(self, chunk: JsonObject, content: Iterable[JsonObject]) -> Iterator[parts.Part]:
        """Start a step where another model message starts: after tool messages, or at another index."""
        role, index = chunk.get("role"), chunk.get("index")
        if not isinstance(role, str):
            role = "tool" if any("toolResponse" in part for part in content) else "model"
        is_other_index = index is not None and self._index is not None and index != self._index
        if self._role is not None and (role != self._role or is_other_index):
            self._streamed = StreamedContent()
            if role != "tool":
                self._calls.next_message()
                yield parts.Step()
        self._role = role
        self._index = self._index if index is None else index

    def _text(
        self, kind: type[parts.Text | parts.Reasoning], part: JsonObject, text: str
    ) -> Iterator[parts.Text | parts.Reasoning]:
        if metadata := _metadata(part):
            yield kind(text, {"genkit": metadata})
        elif text:
            yield kind(text)

    def _request(self, request: JsonObject, part: JsonObject) -> Iterator[parts.Part]:
        call = self._calls.request(request)
        if not call.complete and request.get("partial") is True:
            yield from _partial(call, request.get("input"))
        elif not call.complete:
            yield from self._call(call, part)

    def _call(self, call: ToolRequest, part: JsonObject) -> Iterator[parts.Part]:
        call.complete = True
        value, metadata = part["toolRequest"].get("input"), _call_metadata(call, part)
        call.input = value
        yield parts.ToolCall(call.id, call.name, {} if value is None else value, provider_metadata=metadata)

    def _response(self, response: JsonObject, metadata: JsonObject) -> Iterator[parts.Part]:
        is_partial, is_pending = metadata.get("partial") is True, metadata.get("source") == "pending"
        call = self._calls.progress(response) if is_partial else self._calls.response(response, is_pending=is_pending)
        if call is None:
            return
        if call.id in self._denied:
            if not is_partial:
                yield parts.ToolDenied(call.id, tool_name=call.name)
                yield from self._output_after_denial(call, response)
            return
        content = response.get("content")
        output = response.get("output", content)
        marks = _BY_ORDER if call.by_order else None
        yield parts.ToolResult(call.id, output, is_partial, tool_name=call.name, tool_metadata=marks)
        if is_partial:
            call.has_progress = True
            return
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and "media" in part:
                yield from self.part(part)

    def _output_after_denial(self, call: ToolRequest, response: JsonObject) -> Iterator[parts.Part]:
        if call.name in self._restarted:
            self.answered_denials.append(call.name)
            call_id, output = self._calls.new_id(), response.get("output", response.get("content"))
            yield parts.ToolCall(call_id, call.name, call.input or {}, tool_metadata=_DENIED)
            yield parts.ToolResult(call_id, output, tool_metadata=_DENIED)


def _metadata(part: JsonObject) -> JsonObject:
    metadata = part.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _reason(interrupt: Any) -> str | None:
    """Return the reason of an interrupt, if it has one."""
    reason = interrupt.get("reason", interrupt.get("message")) if isinstance(interrupt, Mapping) else interrupt
    return reason if isinstance(reason, str) else None


def _partial(call: ToolRequest, value: Any) -> Iterator[parts.Part]:
    """Yield what was added to an input that is being streamed, if the new text extends the old one."""
    if not call.started:
        call.started = True
        yield parts.ToolInputStart(call.id, call.name)
    text = value if isinstance(value, str) else _open_text(value)
    if len(text) > len(call.input_text) and text.startswith(call.input_text):
        yield parts.ToolInputDelta(call.id, text[len(call.input_text) :])
        call.input_text = text


def _open_text(value: Any) -> str:
    """Return the JSON text of an incomplete value, without the closing brackets and quote."""
    if not isinstance(value, Mapping | list) or not value:
        return ""
    return json_text(json_value(value)).rstrip("]}").removesuffix('"')


def _call_metadata(call: ToolRequest, part: JsonObject) -> parts.ProviderMetadata | None:
    """Return what the page must send back with the call: Genkit's metadata, and a ``ref`` that differs from the id."""
    metadata = dict(_metadata(part))
    if call.ref is not None and call.ref != call.id:
        metadata["ref"] = call.ref
    return {"genkit": metadata} if metadata else None


def _media_type(media: JsonObject) -> str:
    """Return the media type of a file. Servers omit it where the URL has it."""
    content_type, url = media.get("contentType"), str(media["url"])
    if isinstance(content_type, str) and content_type:
        return content_type
    if url.startswith("data:"):
        return url[5:].partition(",")[0].partition(";")[0] or "text/plain"  # RFC 2397
    return mimetypes.guess_type(urlsplit(url).path)[0] or "application/octet-stream"

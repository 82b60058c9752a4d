"""The parts of a message that is being read: finding one, and what each tool chunk makes of it, release by release.

``PartList`` holds the parts with the indexes that make finding one cheap, ``TextBuffer`` collects text in pieces, and
``ToolParts`` applies tool chunks: it finds the part that a chunk is about, or creates it, and updates its keys.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import UNSET

from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.partial_json import UNDEFINED, parse_partial_json
from usechat.protocol.releases import Release, reads, releases_for
from usechat.protocol.states import SETTLED, ToolState, missing_prerequisite, tool_state_set_by
from usechat.protocol.ui_messages import is_dynamic_tool, is_static_tool, is_tool, tool_name
from usechat.protocol.values import plain_json

__all__ = [
    "Part",
    "PartList",
    "TextBuffer",
    "ToolParts",
]


Part: TypeAlias = dict[str, Any]
"""A part in the making: wire keys; a key whose JavaScript value is ``undefined`` is absent."""


_IDENTITY: Final = frozenset({"type", "toolCallId", "toolName", "state", "approval", "preliminary", "providerExecuted"})
"""The keys of a tool part by which later chunks find it, and which tell what it waits for."""
_APPROVAL_IDENTITY: Final = frozenset({"id", "isAutomatic"})
_SETTLED: Final = tuple(state.value for state in SETTLED)
_Shape: TypeAlias = tuple[tuple[str, str | bool], ...]
"""The keys and values of a forgotten part, apart from its id: most calls of a message have one of few shapes."""


class PartList:
    """The parts in order, cut into steps by ``step-start`` parts."""

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts: list[Part] = []
        self.step = 0
        self._step_start = 0
        self._calls: dict[str | None, list[tuple[int, Part]]] = {}
        self._finished: dict[str, _Shape] = {}
        """The first parts of calls that :meth:`forget` has dropped."""
        self._shapes: dict[_Shape, _Shape] = {}
        self._data: dict[tuple[str, str | None], Part] = {}
        self._count = 0
        self._places: dict[int, tuple[int, int]] = {}
        """The step of each tool part, and its number, by the identity of the part: the order of the parts."""
        self._approvals: dict[str, list[tuple[tuple[int, int], int, Part]]] = {}
        """The parts that asked for an approval, by its id: heaps, some of whose parts may carry another one by now."""
        for part in parts:
            self.append(part)

    def append(self, part: Part) -> None:
        """Add a part at the end."""
        self.parts.append(part)
        if part["type"] == "step-start":
            self.step += 1
            self._step_start = len(self.parts)
        elif is_tool(part):
            self._calls.setdefault(_key(part, "toolCallId"), []).append((self.step, part))
            self._note_place(part, self.step)
            self.note_approval(part)
        else:
            self._data.setdefault((part["type"], _key(part, "id")), part)

    def data(self, part_type: str, part_id: str) -> Part | None:
        """Return the first part with this type and id."""
        return self._data.get((part_type, part_id))

    def current_step(self) -> list[Part]:
        """Return the parts since the last step boundary."""
        return self.parts[self._step_start :]

    def tools(self) -> Iterator[Part]:
        """Yield every tool part in order."""
        return filter(is_tool, self.parts)

    def note_approval(self, part: Part) -> None:
        """Note the approval that a tool part carries now."""
        approval_id = _approval_id(part)
        if isinstance(approval_id, str):
            heap = self._approvals.setdefault(approval_id, [])
            if not heap or heap[0][-1] is not part:
                self._count += 1  # no two entries are equal: parts cannot be compared
                heapq.heappush(heap, (self._places[id(part)], self._count, part))

    def by_approval(self, approval_id: str) -> Part | None:
        """Return the first part that carries an approval."""
        heap = self._approvals.get(approval_id, [])
        while heap:
            place, _, part = heap[0]
            if self._places.get(id(part)) == place and _approval_id(part) == approval_id:
                return part
            heapq.heappop(heap)
        return None

    def _note_place(self, part: Part, step: int) -> None:
        self._count += 1
        self._places[id(part)] = (step, self._count)

    def calls(self, tool_call_id: str) -> list[Part]:
        """Return every part of a tool call in order."""
        if tool_call_id in self._finished:
            self._bring_back(tool_call_id)
        return [part for _, part in self._calls.get(tool_call_id, ())]

    def calls_in_step(self, tool_call_id: str) -> list[Part]:
        """Return the parts of a tool call in the current step, in order."""
        calls = []
        for step, part in reversed(self._calls.get(tool_call_id, ())):
            if step != self.step:
                break
            calls.append(part)
        return calls[::-1]

    def reset_step(self) -> bool:
        """Drop the parts since the last step boundary; tell whether there were any."""
        step = self.current_step()
        del self.parts[self._step_start :]
        for part in step:
            if is_tool(part):
                self._calls[_key(part, "toolCallId")].pop()
                del self._places[id(part)]
            elif self._data.get((part["type"], _key(part, "id"))) is part:
                del self._data[part["type"], _key(part, "id")]
        return bool(step)

    def forget(self) -> None:
        """Drop all parts but the tool calls and the last step boundary, and the values of the calls.

        A later chunk can only refer to a call. Parts of calls that were finished in an earlier step are dropped, too,
        and made again if a chunk refers to them.
        """
        earlier = list(filter(is_tool, self.parts[: self._step_start]))
        current = list(filter(is_tool, self.current_step()))
        for part in (*earlier, *current):
            _keep_identity(part)
        earlier = [part for part in earlier if not self._put_aside(part)]
        boundary: list[Part] = [{"type": "step-start"}] * (self.step > 0)
        self.parts = earlier + boundary + current
        self._step_start = len(earlier) + len(boundary)
        self._data.clear()

    def is_put_aside(self, tool_call_id: str) -> bool:
        """Tell whether the part of a call was dropped because the call is finished."""
        return tool_call_id in self._finished

    def _put_aside(self, part: Part) -> bool:
        """Keep nothing but the shape of a finished part, if its call has no other part; tell whether it was done."""
        tool_call_id = _key(part, "toolCallId")
        is_finished = part.get("state") in _SETTLED and not part.get("preliminary") and "approval" not in part
        if not is_finished or tool_call_id is None or tool_call_id in self._finished:
            return False
        shape = tuple((key, value) for key, value in part.items() if key != "toolCallId")
        if len(self._calls[tool_call_id]) > 1 or not all(isinstance(value, str | bool) for _, value in shape):
            return False
        del self._calls[tool_call_id]
        del self._places[id(part)]
        self._finished[tool_call_id] = self._shapes.setdefault(shape, shape)
        return True

    def _bring_back(self, tool_call_id: str) -> None:
        """Make the part of a call that was put aside again, in front of the current step."""
        part: Part = {**dict(self._finished.pop(tool_call_id)), "toolCallId": tool_call_id}
        self.parts.insert(self._step_start - 1, part)
        self._step_start += 1
        self._calls.setdefault(tool_call_id, []).insert(0, (self.step - 1, part))
        self._note_place(part, self.step - 1)


def _keep_identity(part: Part) -> None:
    identity = {key: value for key, value in part.items() if key in _IDENTITY}
    if isinstance(approval := part.get("approval"), dict):
        identity["approval"] = {key: approval[key] for key in approval.keys() & _APPROVAL_IDENTITY}
    part.clear()  # the same object, since others refer to it
    part.update(identity)


def _key(part: Part, name: str) -> str | None:
    """Return an id; None if the value is not a string, as in a message that someone else made."""
    value = part.get(name)
    return value if isinstance(value, str) else None


class TextBuffer:
    """Collect pieces of a text and join them when somebody looks, so that a long text takes linear time."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]

    def append(self, piece: str) -> None:
        """Add a piece at the end."""
        self._pieces.append(piece)

    def text(self) -> str:
        """Return the text so far."""
        if len(self._pieces) > 1:
            self._pieces = [_with_whole_characters("".join(self._pieces))]
        return self._pieces[0]


def _with_whole_characters(text: str) -> str:
    """Make one character of two halves that came in two pieces, as JavaScript's UTF-16 texts do by themselves."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


# Tool chunks

_InputChunk: TypeAlias = chunks.ToolInputStartChunk | chunks.ToolInputAvailableChunk | chunks.ToolInputErrorChunk
_OutputChunk: TypeAlias = chunks.ToolOutputAvailableChunk | chunks.ToolOutputErrorChunk
_RESULTS: Final = frozenset({ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR})

_STREAMING_OPTIONS: Final = {"input_encoding": "inputEncoding", "title": "title", "tool_metadata": "toolMetadata"}
_APPROVAL_FIELDS: Final = {
    "approval_descriptor": "descriptor",
    "input_schema_input": "inputSchemaInput",
    "reason": "requestReason",
    "signature": "signature",
}
_REQUEST_FIELDS: Final = {
    "signature": "approval-keeps-signature",
    "requestReason": "approval-keeps-request-reason",
}


class _StreamingInput:
    """A tool input that arrives in pieces. It is parsed when someone looks, not at every piece."""

    __slots__ = (
        "buffer", "dynamic", "input_encoding", "keeps_raw_input", "part", "step", "title", "tool_metadata", "tool_name",
    )  # fmt: skip

    def __init__(self, tool_name: str, text: str = "", **options: Any) -> None:
        self.tool_name = tool_name
        self.buffer = TextBuffer(text)
        self.dynamic: bool = bool(options.get("dynamic"))
        self.input_encoding: str | None = options.get("input_encoding")
        self.title: str | None = options.get("title")
        self.tool_metadata: Any = options.get("tool_metadata")
        self.part: Part = {}
        """The part that shows it."""
        self.step = 0
        self.keeps_raw_input = False

    def without_text(self) -> "_StreamingInput":
        """Return an input of the same tool that has no text yet."""
        options = {option: getattr(self, option) for option in ("dynamic", *_STREAMING_OPTIONS)}
        return _StreamingInput(self.tool_name, **options)


class ToolParts:
    """Apply tool chunks to the parts of a message."""

    def __init__(self, release: Release, parts: PartList) -> None:
        self._release = release
        self._parts = parts
        self._streaming: dict[str, _StreamingInput] = {}
        self._behind: dict[str, _StreamingInput] = {}  # those whose part has fallen behind their text
        self._ended: dict[str, _StreamingInput] = {}
        """Inputs of calls that are put aside. Those of the same tool share one, since there can be very many."""
        self._shared: dict[tuple[Any, ...], _StreamingInput] = {}
        self._knows = releases_for(str(release)).knows
        self._replaced_keys = {dynamic: self._find_replaced_keys(dynamic=dynamic) for dynamic in (False, True)}
        if self._reads("streaming-calls-are-restored"):
            self._restore()

    def receive(self, chunk: Chunk) -> None:
        """Apply one tool chunk."""
        self.HANDLERS[type(chunk)](self, chunk)

    def catch_up(self) -> None:
        """Parse the inputs that have fallen behind their text."""
        for tool_call_id in list(self._behind):
            self._catch_up(tool_call_id)

    def forget(self) -> None:
        """Drop the text of the inputs that are open, after :meth:`PartList.forget`; they stay open."""
        for streaming in self._streaming.values():
            streaming.buffer = TextBuffer()
        for tool_call_id in list(filter(self._parts.is_put_aside, self._streaming)):
            if self._streaming[tool_call_id].tool_metadata is None:
                ended = self._streaming.pop(tool_call_id)
                key = ended.tool_name, ended.dynamic, ended.input_encoding, ended.title
                self._ended[tool_call_id] = self._shared.setdefault(key, ended)

    def forget_streaming(self) -> None:
        """Take no more pieces of the inputs that are open."""
        self.catch_up()
        self._streaming.clear()
        self._ended.clear()

    def _reads(self, behaviour: str) -> bool:
        return reads(self._release, behaviour)

    def _find_replaced_keys(self, *, dynamic: bool) -> list[str]:
        """Return the keys that an update sets or clears; a release leaves alone what it does not know."""
        replaced = {
            "input": True,
            "output": True,
            "errorText": True,
            "preliminary": self._knows("tool-output-available", "preliminary"),
            "inputEncoding": self._knows("tool-input-start", "inputEncoding"),
            "rawInput": self._reads("raw-input-while-streaming" if dynamic else "raw-input"),
        }
        return [key for key, is_replaced in replaced.items() if is_replaced]

    def _restore(self) -> None:
        """Continue the inputs that were streaming when the message was last seen."""
        for part in filter(is_tool, self._parts.current_step()):
            if part.get("state") == ToolState.INPUT_STREAMING.value:
                options = {
                    option: part.get(key)
                    for option, key in _STREAMING_OPTIONS.items()
                    if self._knows("tool-input-start", key)
                }
                text = part.get("rawInput")
                self._streaming[str(part.get("toolCallId"))] = _StreamingInput(
                    tool_name(part),
                    text if isinstance(text, str) else "",
                    dynamic=is_dynamic_tool(part),
                    **options,
                )

    # Which part a chunk is about.

    def _find_for_input(self, tool_call_id: str, of_kind: Callable[[Part], bool]) -> Part | None:
        in_step = self._reads("tool-calls-belong-to-steps")
        candidates = self._parts.calls_in_step(tool_call_id) if in_step else self._parts.calls(tool_call_id)
        return next(filter(of_kind, candidates), None)

    def _find_for_output(self, chunk: Any, of_kind: Callable[[Part], bool]) -> Part:
        part = self._find_for_input(chunk.tool_call_id, of_kind)
        if part is None:
            part = next(filter(of_kind, reversed(self._parts.calls(chunk.tool_call_id))), None)
        if part is None:
            raise missing_prerequisite(chunk, chunk.tool_call_id, self._release)
        return part

    # What a chunk does to its part.

    def _input_start(self, chunk: chunks.ToolInputStartChunk) -> None:
        self._catch_up(chunk.tool_call_id)
        options = {option: getattr(chunk, option) for option in _STREAMING_OPTIONS}
        self._streaming[chunk.tool_call_id] = _StreamingInput(chunk.tool_name, dynamic=chunk.dynamic, **options)
        replacements = _without_none({"inputEncoding": chunk.input_encoding})
        self._set_input(chunk, bool(chunk.dynamic), replacements, title=chunk.title)

    def _input_available(self, chunk: chunks.ToolInputAvailableChunk) -> None:
        self._catch_up(chunk.tool_call_id)
        self._set_input(chunk, bool(chunk.dynamic), {"input": plain_json(chunk.input)}, title=chunk.title)

    def _input_error(self, chunk: chunks.ToolInputErrorChunk) -> None:
        self._catch_up(chunk.tool_call_id)
        dynamic = bool(chunk.dynamic)
        if self._reads("input-errors-find-either-kind"):
            existing = self._find_for_input(chunk.tool_call_id, is_tool)
            dynamic = is_dynamic_tool(existing) if existing else dynamic
        key = "input" if dynamic or self._reads("input-error-keeps-input") else "rawInput"
        # Its title is not looked at, in no release.
        self._set_input(chunk, dynamic, {key: plain_json(chunk.input), "errorText": chunk.error_text}, title=None)

    def _set_input(
        self, chunk: _InputChunk, dynamic: bool, replacements: Mapping[str, Any], *, title: str | None
    ) -> None:
        part, created = self._find_or_create(chunk.tool_call_id, chunk.tool_name, dynamic)
        updates = {"providerExecuted": chunk.provider_executed, "toolMetadata": chunk.tool_metadata, "title": title}
        self._update(part, chunk, chunk.tool_name, replacements, updates, created=created)

    def _input_delta(self, chunk: chunks.ToolInputDeltaChunk) -> None:
        if chunk.tool_call_id in self._ended:
            self._streaming.setdefault(chunk.tool_call_id, self._ended.pop(chunk.tool_call_id).without_text())
        streaming = self._streaming.get(chunk.tool_call_id)
        if streaming is None:
            raise missing_prerequisite(chunk, chunk.tool_call_id, self._release)
        keeps_raw_input = self._reads("raw-input-while-streaming")
        if chunk.tool_call_id not in self._behind or streaming.step != self._parts.step:
            self._catch_up(chunk.tool_call_id)
            part, created = self._find_or_create(chunk.tool_call_id, streaming.tool_name, streaming.dynamic)
            replacements = _without_none({"inputEncoding": streaming.input_encoding})
            updates = {"title": streaming.title, "toolMetadata": streaming.tool_metadata}
            self._update(part, chunk, streaming.tool_name, replacements, updates, created=created)
            streaming.part = part
            streaming.step = self._parts.step
            self._behind[chunk.tool_call_id] = streaming
            keeps_raw_input = keeps_raw_input and not (created and streaming.dynamic)
        streaming.keeps_raw_input = keeps_raw_input
        streaming.buffer.append(chunk.input_text_delta)

    def _catch_up(self, tool_call_id: str) -> None:
        streaming = self._behind.pop(tool_call_id, None)
        if streaming is None:
            return
        part, text = streaming.part, streaming.buffer.text()
        value = text if streaming.input_encoding == "text" else parse_partial_json(text, self._release)
        if value is not UNDEFINED:
            part["input"] = plain_json(value)
        if streaming.keeps_raw_input:
            part["rawInput"] = text

    def _output(self, chunk: _OutputChunk) -> None:
        self._catch_up(chunk.tool_call_id)
        of_kind = is_tool
        if not self._reads("outputs-find-either-kind"):
            of_kind = is_dynamic_tool if chunk.dynamic else is_static_tool
        part = self._find_for_output(chunk, of_kind)
        dynamic = is_dynamic_tool(part)
        replacements = {"input": part["input"]} if "input" in part else {}
        updates: dict[str, Any] = {}
        if isinstance(chunk, chunks.ToolOutputAvailableChunk):
            replacements |= {"output": plain_json(chunk.output)} | _without_none({"preliminary": chunk.preliminary})
            has_executor = not dynamic or self._reads("provider-executed-on-dynamic-outputs")
        else:
            replacements |= {"errorText": chunk.error_text}
            if not dynamic and "rawInput" in part:
                replacements["rawInput"] = part["rawInput"]
            has_executor = self._reads("provider-executed-on-dynamic-parts")
        if has_executor:
            updates["providerExecuted"] = chunk.provider_executed
        if self._reads("tool-metadata-of-outputs"):
            updates["toolMetadata"] = chunk.tool_metadata
        self._update(part, chunk, tool_name(part), replacements, updates)

    def _denied(self, chunk: chunks.ToolOutputDeniedChunk) -> None:
        self._catch_up(chunk.tool_call_id)
        self._find_for_output(chunk, is_tool)["state"] = tool_state_set_by(chunk).value

    def _approval_request(self, chunk: chunks.ToolApprovalRequestChunk) -> None:
        self._catch_up(chunk.tool_call_id)
        part = self._find_for_output(chunk, is_tool)
        part["state"] = tool_state_set_by(chunk).value
        part["approval"] = {"id": chunk.approval_id}
        for field, key in _APPROVAL_FIELDS.items():
            value = getattr(chunk, field)
            if value is not UNSET and (value is not None or key == "inputSchemaInput"):
                part["approval"][key] = plain_json(value)
        if chunk.is_automatic:
            part["approval"]["isAutomatic"] = True
        self._parts.note_approval(part)

    def _approval_response(self, chunk: chunks.ToolApprovalResponseChunk) -> None:
        part = self._parts.by_approval(chunk.approval_id)
        if part is None:
            raise missing_prerequisite(chunk, chunk.approval_id, self._release)
        self._catch_up(str(part.get("toolCallId")))
        part["state"] = tool_state_set_by(chunk).value
        answer = {"id": chunk.approval_id, "approved": chunk.approved} | _without_none({"reason": chunk.reason})
        part["approval"] = self._request_fields(part["approval"]) | answer
        self._set_values(
            part, {"providerExecuted": chunk.provider_executed, "callProviderMetadata": chunk.provider_metadata}
        )

    def _request_fields(self, approval: dict[str, Any]) -> dict[str, Any]:
        if self._reads("approval-keeps-everything"):
            return approval
        fields = {"isAutomatic": True} if approval.get("isAutomatic") is True else {}
        for key, behaviour in _REQUEST_FIELDS.items():
            if approval.get(key) is not None and self._reads(behaviour):
                fields[key] = approval[key]
        return fields

    # Parts.

    def _find_or_create(self, tool_call_id: str, tool_name: str, dynamic: bool) -> tuple[Part, bool]:
        part = self._find_for_input(tool_call_id, is_dynamic_tool if dynamic else is_static_tool)
        if part is not None:
            return part, False
        part = {"type": "dynamic-tool", "toolName": tool_name} if dynamic else {"type": f"tool-{tool_name}"}
        part["toolCallId"] = tool_call_id
        self._parts.append(part)
        return part, True

    def _update(
        self,
        part: Part,
        chunk: Any,
        tool_name: str,
        replacements: Mapping[str, Any],
        updates: Mapping[str, Any],
        *,
        created: bool = False,
    ) -> None:
        """Set the state. Keys without a value are cleared in ``replacements`` and left alone in ``updates``."""
        state = tool_state_set_by(chunk)
        dynamic = is_dynamic_tool(part)
        part["state"] = state.value
        if dynamic:
            part["toolName"] = tool_name
        elif self._reads("type-follows-tool-name"):
            part["type"] = f"tool-{tool_name}"
        for key in self._replaced_keys[dynamic]:
            part.pop(key, None)
            if key in replacements:
                part[key] = replacements[key]
        if dynamic and not self._reads("provider-executed-on-dynamic-parts"):
            updates = {key: value for key, value in updates.items() if key != "providerExecuted"}
        self._set_values(part, updates)
        self._set_values(part, self._metadata(state, getattr(chunk, "provider_metadata", None), created=created))

    def _metadata(self, state: ToolState, provider_metadata: Any, *, created: bool) -> dict[str, Any]:
        if state in _RESULTS and self._reads("result-metadata"):
            return {"resultProviderMetadata": provider_metadata}
        if created or state is ToolState.INPUT_AVAILABLE or self._reads("call-metadata-in-every-state"):
            return {"callProviderMetadata": provider_metadata}
        return {}

    def _set_values(self, part: Part, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if value is not None:
                part[key] = plain_json(value)

    HANDLERS: ClassVar[Mapping[type[Chunk], Callable[["ToolParts", Any], None]]] = {
        chunks.ToolInputStartChunk: _input_start,
        chunks.ToolInputAvailableChunk: _input_available,
        chunks.ToolInputErrorChunk: _input_error,
        chunks.ToolInputDeltaChunk: _input_delta,
        chunks.ToolOutputAvailableChunk: _output,
        chunks.ToolOutputErrorChunk: _output,
        chunks.ToolOutputDeniedChunk: _denied,
        chunks.ToolApprovalRequestChunk: _approval_request,
        chunks.ToolApprovalResponseChunk: _approval_response,
    }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _approval_id(part: Part) -> Any:
    approval = part.get("approval")
    return approval.get("id") if isinstance(approval, dict) else None

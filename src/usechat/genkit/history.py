"""The page's messages as Genkit's: roles ``user``, ``model`` and ``tool``, each with content parts."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from usechat import Turn, UIMessage
from usechat.genkit.approvals import Approval, MapApproval, Respond, Restart, resume_with
from usechat.genkit.tool_requests import OWN_ID, ToolRequest
from usechat.transports import ApprovalAnswer
from usechat.ui_messages import APPROVAL_TOOL, ToolState, is_settled, is_tool, last_step, steps_of, tool_name

__all__ = [
    "Resume",
    "genkit_messages",
    "known_calls",
    "resume_of",
    "resumed_history",
    "user_content",
]

Wire: TypeAlias = dict[str, Any]
"""An object of Genkit's JSON."""


def user_content(message: UIMessage | None) -> list[Wire]:
    """Return the text and the files of a user's message."""
    return [content for part in _parts(message) for content in _plain_content(part)]


def genkit_messages(messages: Iterable[UIMessage], *, call_ids: Container[str] = ()) -> list[Wire]:
    """Return the history as Genkit messages. A call without an outcome is left out.

    ``call_ids`` are the calls of the last step whose answers are in ``resume``. Genkit requires that their requests end
    the history, and that the outputs of the other tools of that step are beside them as ``pendingOutput``.
    """
    history: list[Wire] = []
    for message in messages:
        if message["role"] == "user":
            history.append({"role": "user", "content": user_content(message)})
        elif message["role"] == "assistant":
            history += _model_messages(message, call_ids)
    return [message for message in history if message["content"]]


class Resume(NamedTuple):
    """The answers to interrupted calls: Genkit's ``resume``, and the ids of those calls.

    ``confused`` is a tool whose calls Genkit would confuse: it finds a call by its name and ``ref``, so calls of one
    name without a ``ref`` all get the first answer (``@genkit-ai/ai`` 1.42.0, ``genkit`` 0.12.0, Go 1.12).
    """

    wire: dict[str, list[Wire]]
    call_ids: frozenset[str]
    denied: frozenset[str]
    confused: str | None


def resume_of(turn: Turn, map_approval: MapApproval | None = None) -> Resume | None:
    """Return the answers of a turn that continues a message: tool outputs of the page, approved and denied calls."""
    return _resume_of(turn, turn.request.continues, map_approval)


def resumed_history(turn: Turn, map_approval: MapApproval | None = None) -> tuple[list[Wire], Resume] | None:
    """Return the history and the answers of a turn that continues a message, for servers that get the whole history.

    Calls that only their order tells apart get refs, in both.
    """
    if turn.request.continues is None:
        return None
    last = _told_apart(turn.request.continues)
    resume = _resume_of(turn, last, map_approval)
    return None if resume is None else (genkit_messages([*turn.messages[:-1], last], call_ids=resume.call_ids), resume)


def _resume_of(turn: Turn, message: UIMessage | None, map_approval: MapApproval | None) -> Resume | None:
    outputs = {output.tool_call_id for output in turn.tool_outputs}
    outputs &= {part.get("toolCallId") for part in last_step(_parts(message))}
    approvals = {answer.tool_call_id: answer for answer in turn.approvals}
    wire: dict[str, list[Wire]] = {"respond": [], "restart": []}
    call_ids: set[str] = set()
    for part in filter(_is_tool, _parts(message)):
        if answer := approvals.get(part["toolCallId"]):
            kind, resumed = _decided(part, answer, map_approval)
            wire[kind].append(resumed)
        elif part["toolCallId"] in outputs:
            wire["respond"].append(_response(part, _output_of(part)))
        else:
            continue
        call_ids.add(part["toolCallId"])
    if not call_ids:
        return None
    step = next(step for step in reversed(_steps(message)) if any(part.get("toolCallId") in call_ids for part in step))
    wire["respond"] += [_response(part, part.get("output")) for part in step if _is_lost(part, call_ids)]
    confused = _confused(step, wire)
    denied = frozenset(str(answer.tool_call_id) for answer in turn.approvals if not answer.approved)
    return Resume({kind: answers for kind, answers in wire.items() if answers}, frozenset(call_ids), denied, confused)


def _decided(part: Mapping[str, Any], answer: ApprovalAnswer, map_approval: MapApproval | None) -> tuple[str, Wire]:
    """Return what resumes a call after a person's answer, and whether it is a response or a restart."""
    request = _request(part)
    approval = Approval(request["name"], request["input"], answer.approved, answer.reason)
    match resume_with(approval, map_approval):
        case Restart(resumed):
            return "restart", {"toolRequest": request, "metadata": {"resumed": resumed}}
        case Respond(output):
            return "respond", _response(part, output)


def _is_lost(part: Mapping[str, Any], call_ids: Container[str]) -> bool:
    """Tell whether a pending output must be sent as a response, too: JavaScript ignores ``null``, ``false``, 0, ""."""
    is_pending = (
        _is_tool(part) and part.get("state") == ToolState.OUTPUT_AVAILABLE and part["toolCallId"] not in call_ids
    )
    return is_pending and not part.get("output") and not isinstance(part.get("output"), list | dict)


def _told_apart(message: UIMessage) -> UIMessage:
    """Return a message in which calls of one step get their ids as refs, if several of one name have none."""
    refs = {part["toolCallId"]: part["toolCallId"] for step in _steps(message) for part in _same_calls(step)}
    return cast("UIMessage", {**message, "parts": [_with_ref(part, refs) for part in _parts(message)]})


def _same_calls(step: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the calls of a step without a ``ref`` whose name others of them have, too."""
    calls = [part for part in step if _is_tool(part) and _ref_of(part) is None]
    names = Counter(_name_and_ref(part)["name"] for part in calls)
    return [part for part in calls if names[_name_and_ref(part)["name"]] > 1]


def _confused(step: list[Mapping[str, Any]], wire: Mapping[str, list[Wire]]) -> str | None:
    """Return the name of calls that would get each other's answers."""
    for call in _same_calls(step):
        request = _request(call)
        responses = [each for each in wire["respond"] if _is_of(each["toolResponse"], request)]
        restarts = [each for each in wire["restart"] if _is_of(each["toolRequest"], request)]
        answers = [*responses, *restarts]
        is_other_restarted = any(each["toolRequest"]["input"] != request["input"] for each in restarts)
        if is_other_restarted or any(each != answers[0] for each in answers):
            return str(request["name"])
    return None


def _is_of(answer: Wire, request: Wire) -> bool:
    """Tell whether Genkit takes an answer as one to this request."""
    return bool(answer["name"] == request["name"] and answer.get("ref") == request.get("ref"))


def known_calls(turn: Turn) -> list[ToolRequest]:
    """Return the calls of the message that a turn continues."""
    return [
        ToolRequest(
            part["toolCallId"],
            _name_and_ref(part)["name"],
            _ref_of(part),
            complete=True,
            input=part.get("input"),
            has_response=is_settled(part),
            echo=is_settled(part),
        )
        for part in filter(_is_tool, _parts(turn.request.continues))
    ]


def _model_messages(message: UIMessage, call_ids: Container[str]) -> Iterator[Wire]:
    """Yield the messages of each step: the model's, then that of its tools."""
    for step in _steps(message):
        pending = any(part.get("toolCallId") in call_ids for part in step)
        model: list[Wire] = []
        tools: list[Wire] = []
        for part in step:
            if not _is_tool(part):
                model += _plain_content(part)
                continue
            request = {"toolRequest": _request(part)} | _metadata(part, "callProviderMetadata")
            if part["toolCallId"] in call_ids:
                model.append(request)
            elif part.get("state") not in (ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR):
                continue  # models refuse a request without a response
            elif pending:
                model.append(request | {"metadata": request.get("metadata", {}) | {"pendingOutput": _output_of(part)}})
            else:
                model.append(request)
                tools.append(_response(part, _output_of(part)))
        yield from ({"role": "model", "content": model}, {"role": "tool", "content": tools})


def _plain_content(part: Mapping[str, Any]) -> Iterator[Wire]:
    match part:
        case {"type": "text", "text": str(text)} if text:
            yield {"text": text}
        case {"type": "reasoning", "text": str(text)}:
            yield {"reasoning": text} | _metadata(part, "providerMetadata")
        case {"type": "file", "url": str(url)}:
            media_type = part.get("mediaType")
            yield {"media": {"url": url} | ({"contentType": media_type} if media_type else {})}


def _metadata(part: Mapping[str, Any], key: str) -> Wire:
    """Return Genkit's metadata of a part, such as the signature of a thought, without keys that are sent elsewhere."""
    metadata = {
        name: value
        for name, value in _genkit_metadata(part, key).items()
        if name not in ("interrupt", "pendingOutput", "ref")
    }
    return {"metadata": metadata} if metadata else {}


def _genkit_metadata(part: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return Genkit's metadata of a part as the page sends it back."""
    provider_metadata = part.get(key)
    metadata = provider_metadata.get("genkit") if isinstance(provider_metadata, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}


def _request(part: Mapping[str, Any]) -> Wire:
    return _name_and_ref(part) | {"input": part.get("input")}


def _response(part: Mapping[str, Any], output: Any) -> Wire:
    return {"toolResponse": _name_and_ref(part) | {"output": output}}


def _ref_of(part: Mapping[str, Any]) -> str | None:
    """Return the ``ref`` of the tool request behind a tool part."""
    ref, call_id = _genkit_metadata(part, "callProviderMetadata").get("ref"), str(part["toolCallId"])
    if isinstance(ref, str):
        return ref
    return None if call_id.startswith(OWN_ID) else call_id


def _name_and_ref(part: Mapping[str, Any]) -> Wire:
    ref = _ref_of(part)
    return {"name": tool_name(part)} | ({"ref": ref} if ref is not None else {})


def _output_of(part: Mapping[str, Any]) -> Any:
    if part.get("state") == ToolState.OUTPUT_ERROR:
        return {"error": part.get("errorText")}
    return part.get("output")


def _is_tool(part: Mapping[str, Any]) -> bool:
    return is_tool(part) and isinstance(part.get("toolCallId"), str) and part["type"] != f"tool-{APPROVAL_TOOL}"


def _steps(message: UIMessage | None) -> list[list[Mapping[str, Any]]]:
    return steps_of(_parts(message))


def _parts(message: UIMessage | None) -> list[Mapping[str, Any]]:
    """Return the parts of a message. A ``ref`` that became known late is added to the metadata of its call."""
    parts = [] if message is None else cast("list[Mapping[str, Any]]", message["parts"])
    match message:
        case {"metadata": {"genkit": {"refs": Mapping() as refs}}}:
            return [_with_ref(part, refs) for part in parts]
    return parts


def _with_ref(part: Mapping[str, Any], refs: Mapping[str, Any]) -> Mapping[str, Any]:
    ref = refs.get(str(part.get("toolCallId")))
    if not isinstance(ref, str):
        return part
    metadata = {**_genkit_metadata(part, "callProviderMetadata"), "ref": ref}
    return {**part, "callProviderMetadata": {"genkit": metadata}}

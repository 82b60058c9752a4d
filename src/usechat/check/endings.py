"""Tool parts that a message leaves behind although its stream ended well: they keep the page waiting.

No client reports them. A *ghost* is a second part of a call whose input goes on elsewhere, and stays in
``input-streaming``. A stall is a question whose answer is never sent: ``sendAutomaticallyWhen`` of a page is
``lastAssistantMessageIsCompleteWithToolCalls`` or ``lastAssistantMessageIsCompleteWithApprovalResponses``, and both
look at the parts after the last ``step-start`` alone. Where several answers are waited for, the page must send them
with the last one, whichever that is: one that is *overtaken* by the others may never be sent. Both conditions are
mirrored here as the newest release of each major has them; the tests compare them with the npm packages.
"""

from collections.abc import Container, Iterator, Sequence
from typing import Any, Final

from usechat.protocol.releases import CHUNKS, Release, Since
from usechat.protocol.states import ToolState
from usechat.protocol.tool_parts import Part
from usechat.protocol.ui_messages import is_tool, last_step

__all__ = ["ghosts", "is_sent_automatically", "overtaken_calls", "stalled_calls"]

_WAITS_FOR_FINAL_RESULTS: Final = Since(None, 0, 0)
"""The majors that do not take a preliminary result for the result."""
_RESPONDED: Final = ToolState.APPROVAL_RESPONDED


def ghosts(parts: Sequence[Part], explained: Container[str]) -> Iterator[str]:
    """Yield the calls that have a part in the state ``input-streaming``, apart from those with another problem."""
    for part in filter(is_tool, parts):
        if part["state"] == ToolState.INPUT_STREAMING and part["toolCallId"] not in explained:
            yield part["toolCallId"]


def stalled_calls(parts: Sequence[Part], release: Release, *, waits_for_page: bool) -> list[str]:
    """Return the calls that the page is asked about, if no page sends the chat again after it has answered them.

    ``waits_for_page`` says that calls without a result are meant for the page.
    """
    call_ids = [
        part["toolCallId"]
        for part in filter(is_tool, parts)
        if _waits_for_approval(part) or (waits_for_page and _waits_for_output(part))
    ]
    return [] if not call_ids or is_sent_automatically(list(map(_answered, parts)), release) else call_ids


def overtaken_calls(parts: Sequence[Part], release: Release, *, waits_for_page: bool) -> list[str]:
    """Return the calls without whose answer the page sends the chat, although it is asked about them.

    A call of an earlier step is not looked at, and one that the provider runs is not counted among the results.
    ``waits_for_page`` is that of :func:`stalled_calls`. Behind a call that waits for its result, a server begins no
    step unless it runs the call itself, or asks for approvals through client-side tools.
    """
    subjects = {subject for part in parts if (subject := _subject(part)) is not None}
    step = last_step(parts)
    rest, waiting = [
        [
            part
            for part in filter(is_tool, side)
            if _waits_for_approval(part)
            or (waits_for_page and _waits_for_output(part) and part["toolCallId"] not in subjects)
        ]
        for side in (parts[: len(parts) - len(step)], step)
    ]
    only_asks = all(map(_subject, waiting))
    earlier = [part for part in rest if only_asks or _waits_for_approval(part) or _subject(part)]
    answers = list(map(_answered, step))
    by_provider = [part for part in waiting if part.get("providerExecuted") and _has_results(answers, release)]
    overtaken = [*(earlier if waiting and _posts(answers, release) else []), *by_provider]
    return [part["toolCallId"] for part in overtaken]


def is_sent_automatically(parts: Sequence[Part], release: Release) -> bool:
    """Return whether a page with these parts in its last message sends the chat, with either of the two conditions."""
    return _posts(last_step(parts), release)


def _posts(step: Sequence[Part], release: Release) -> bool:
    return _has_results(step, release) or _has_approvals(step, release)


def _has_results(step: Sequence[Part], release: Release) -> bool:
    own = [index for index, part in enumerate(step) if is_tool(part) and not part.get("providerExecuted")]
    return (
        bool(own)
        and all(_has_result(step[index], release) for index in own)
        and not any(part["type"] == "text" and part.get("state") != "done" for part in step[own[-1] + 1 :])
    )


def _has_approvals(step: Sequence[Part], release: Release) -> bool:
    tools = list(filter(is_tool, step))
    return (
        CHUNKS["tool-approval-request"].since.includes(release)
        and any(part["state"] == _RESPONDED for part in tools)
        and all(part["state"] in (_RESPONDED, ToolState.OUTPUT_DENIED) or _has_result(part, release) for part in tools)
    )


def _has_result(part: Part, release: Release) -> bool:
    if part["state"] == ToolState.OUTPUT_AVAILABLE:
        return part.get("preliminary") is not True or not _WAITS_FOR_FINAL_RESULTS.includes(release)
    return bool(part["state"] == ToolState.OUTPUT_ERROR)


def _subject(part: Part) -> str | None:
    """Return the call that another one asks about: how a client without approvals is asked."""
    match part:
        case {"type": "tool-approval", "input": {"toolCallId": str(tool_call_id)}}:
            return tool_call_id
    return None


def _waits_for_approval(part: Part) -> bool:
    return part["state"] == ToolState.APPROVAL_REQUESTED and not part["approval"].get("isAutomatic")


def _waits_for_output(part: Part) -> bool:
    return part["state"] == ToolState.INPUT_AVAILABLE and not part.get("providerExecuted")


def _answered(part: Part) -> dict[str, Any]:
    """Return the part as it is after the page has answered all that it can answer."""
    if is_tool(part):
        if _waits_for_approval(part):
            return part | {"state": _RESPONDED.value}
        if _waits_for_output(part):
            return part | {"state": ToolState.OUTPUT_AVAILABLE.value}
    return part

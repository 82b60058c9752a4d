"""From what is stored of an answer whose process died, the message that another process continues. No I/O.

A crash leaves three things behind the last step that is known to be finished: text that the model has not ended, calls
whose tools may have run, and calls whose input is not complete. :func:`recover` cuts what can be asked again, and
settles what may have had an effect:

- A step without a complete call is dropped: the model is asked again.
- A call that was complete may have run. It becomes an error which says that its outcome is not known, and the model
  decides. With ``asks`` a person decides first, by an approval, or by the client tool that stands for it in AI SDK 5.
- If all open calls are of tools that may run again, and nothing else of their step has an outcome, the step is dropped.
- Input that was cut off, and open calls that the provider runs, are dropped.
- A finished step without calls is the end of the answer: nothing is asked again.

>>> text = {"type": "text", "text": "Let me", "state": "streaming"}
>>> message = {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, text]}
>>> recover(message, 0, RecoveryPolicy())
Recovery(kind='continue', message={'id': 'm1', 'role': 'assistant', 'parts': []}, dropped=2, settled=())
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from usechat.protocol.request import ChatRequest
from usechat.protocol.states import ToolState
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import (
    UIMessage,
    is_provider_executed,
    is_settled,
    is_tool,
    last_step,
    last_step_start,
    tool_name,
)

__all__ = [
    "MAY_CALL_AGAIN",
    "NOT_ALLOWED",
    "UNKNOWN_OUTCOME",
    "Recovery",
    "RecoveryPolicy",
    "as_continued",
    "is_question_of_recovery",
    "recover",
    "told",
    "with_answers_of_recovery",
]

UNKNOWN_OUTCOME: Final = "The server was interrupted while this tool ran. It is not known whether the call took effect."
MAY_CALL_AGAIN: Final = "The server was interrupted while this tool ran. The tool may be called again."
NOT_ALLOWED: Final = f"{UNKNOWN_OUTCOME} It must not be called again."

_QUESTION: Final = "after-crash-"
_STREAMED: Final = ("text", "reasoning")
_OUTCOME: Final = ("state", "output", "errorText", "preliminary", "resultProviderMetadata")
"""The keys of a tool part that an outcome sets."""
_Kind: TypeAlias = Literal["continue", "restart", "complete", "waiting", "stuck"]


class RecoveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a call that was open: ``replayable`` names the tools that may run again.

    ``asks`` says that a person is asked about each of the others: without ``has_approvals`` by a call of the client
    tool that stands for an approval, in a step of its own. ``answerable`` are calls that wait for the page.
    """

    asks: bool = False
    has_approvals: bool = True
    replayable: frozenset[str] = frozenset()
    answerable: frozenset[str] = frozenset()


class Recovery(msgspec.Struct, frozen=True):
    """What to do with an answer whose process died.

    - ``continue``: the agent goes on behind ``message``; without parts it begins again.
    - ``restart``: the agent begins its turn again, and ``message`` is as it was then.
    - ``complete``: ``message`` is the whole answer.
    - ``waiting``: a person must answer first; the turn ends with ``message``.
    - ``stuck``: nothing can follow ``message``, although it is not whole. The answer is lost.

    ``dropped`` is how many parts were cut, ``settled`` names the calls that got an outcome here.
    """

    kind: _Kind
    message: UIMessage
    dropped: int = 0
    settled: tuple[str, ...] = ()


def as_continued(message: UIMessage, length: int, *, answerable: Collection[str], given: Collection[str]) -> UIMessage:
    """Return an answer of ``length`` parts as it was when its last run began to continue it.

    The calls ``answerable`` were open then, and the calls ``given`` had been answered by the page. So was a call about
    which a person was asked: its page has the question, answered, and not what came of the call.

    >>> approval = {"id": "a1", "approved": True}
    >>> call = {"type": "tool-pay", "toolCallId": "c1", "state": "output-available", "output": 1, "approval": approval}
    >>> message = {"id": "m1", "role": "assistant", "parts": [call, {"type": "step-start"}]}
    >>> continued = as_continued(message, 1, answerable=[], given=["c1"])
    >>> [(part["state"], "output" in part) for part in continued["parts"]]
    [('approval-responded', False)]
    """
    parts = cast("list[dict[str, Any]]", message["parts"])
    continued = [_unsettled(part, answerable, given) for part in parts[:length]]
    return cast("UIMessage", {**message, "parts": continued})


def _unsettled(part: dict[str, Any], answerable: Collection[str], given: Collection[str]) -> dict[str, Any]:
    """Return a call without the outcome that the run has given it."""
    call_id, approval = part.get("toolCallId"), part.get("approval")
    is_asked_about = call_id in given or f"{_QUESTION}{call_id}" in given
    if call_id in answerable or (is_asked_about and part.get("errorText") in (MAY_CALL_AGAIN, NOT_ALLOWED)):
        state = "input-available" if approval is None else "approval-requested"
    elif call_id in given and approval is not None:
        state = "approval-responded"
    else:
        return part
    return {**{key: value for key, value in part.items() if key not in _OUTCOME}, "state": state}


def is_question_of_recovery(approval: Mapping[str, Any]) -> bool:
    """Tell whether an approval asks about a call that a crash has interrupted."""
    return str(approval.get("id", "")).startswith(_QUESTION)


def with_answers_of_recovery(message: UIMessage) -> UIMessage:
    """Return a message whose model is told what a person has answered to questions that were asked by a client tool."""
    answers = {
        answer.tool_call_id: answer.approved
        for answer in ChatRequest(messages=[message]).approvals
        if is_question_of_recovery({"id": answer.approval_id})
    }
    if not answers:
        return message
    parts = [
        told(part, answers[part["toolCallId"]]) if part.get("toolCallId") in answers else part
        for part in cast("list[dict[str, Any]]", message["parts"])
    ]
    return cast("UIMessage", {**message, "parts": parts})


def told(part: Mapping[str, Any], approved: bool) -> dict[str, Any]:
    """Return a call as an error that tells the model whether it may call the tool again; no question is left in it."""
    call = {key: value for key, value in part.items() if key != "approval" or "approved" in value}
    return {**call, "state": "output-error", "errorText": MAY_CALL_AGAIN if approved else NOT_ALLOWED}


def recover(message: UIMessage, finished: int, policy: RecoveryPolicy) -> Recovery:
    """Return what to do with an answer of which ``finished`` parts were there when its last finished step ended."""
    parts = cast("list[dict[str, Any]]", message["parts"])
    tail = _kept_tail(parts[finished:], policy)
    kept = [*parts[:finished], *tail]
    after = [_settled(part, policy) for part in kept]
    settled = tuple(
        part["toolCallId"] for part, before in zip(after, kept, strict=True) if _is_call(part) and part != before
    )
    questions = [] if policy.has_approvals else [_question(part) for part in after if _is_asked_about(part, policy)]
    kind = "waiting" if questions else _kind(after, len(parts) > finished, policy)
    asking = [{"type": "step-start"}, *questions] if questions else []
    recovered = cast("UIMessage", {**message, "parts": [*after, *asking]})
    return Recovery(kind, recovered, len(parts) - len(after), settled)


def _kept_tail(tail: Sequence[dict[str, Any]], policy: RecoveryPolicy) -> list[dict[str, Any]]:
    """Return what stays of the parts behind the last finished step: the steps before the last one, and its calls."""
    begin = last_step_start(tail)
    step = tail[begin:]
    calls = [part for part in step if _may_have_run(part)]
    may_run_again = all(not is_settled(part) and tool_name(part) in policy.replayable for part in calls)
    return [*tail[:begin], *([] if may_run_again else [part for part in step if not _is_cut_off(part)])]


def _is_call(part: Mapping[str, Any]) -> bool:
    return is_tool(part) and isinstance(part.get("toolCallId"), str)


def _may_have_run(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is a call of a tool of ours whose input is complete."""
    return _is_call(part) and not is_provider_executed(part) and part.get("state") != ToolState.INPUT_STREAMING


def _is_cut_off(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is one that its model or provider has not ended."""
    if _is_call(part):
        is_open_elsewhere = is_provider_executed(part) and not is_settled(part)
        return is_open_elsewhere or part.get("state") == ToolState.INPUT_STREAMING
    return part["type"] in _STREAMED and part.get("state") == "streaming"


def _settled(part: dict[str, Any], policy: RecoveryPolicy) -> dict[str, Any]:
    """Return a part with the outcome of its call, if the call was open."""
    if not _is_call(part) or is_settled(part) or _waits(part, policy):
        return part
    if _is_denied(part):
        return {**part, "state": "output-denied"}
    if tool_name(part) in policy.replayable:
        return told(part, approved=True)
    if not policy.asks:
        return {**part, "state": "output-error", "errorText": UNKNOWN_OUTCOME}
    if not policy.has_approvals:
        return part
    return {**part, "state": "approval-requested", "approval": {"id": f"{_QUESTION}{part['toolCallId']}"}}


def _is_denied(part: Mapping[str, Any]) -> bool:
    return part.get("approval", {}).get("approved") is False


def _is_asked_about(part: Mapping[str, Any], policy: RecoveryPolicy) -> bool:
    """Tell whether a person is asked about a call that :func:`_settled` has left open."""
    return policy.asks and _is_call(part) and not is_settled(part) and not _waits(part, policy)


def _question(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question about a call for a client without approvals, as a stream asks it."""
    question_id = f"{_QUESTION}{part['toolCallId']}"
    about = {"toolCallId": part["toolCallId"], "toolName": tool_name(part), "input": part.get("input")}
    return {
        "type": f"tool-{APPROVAL_TOOL}",
        "toolCallId": question_id,
        "state": ToolState.INPUT_AVAILABLE.value,
        "input": {"approvalId": question_id, **about},
    }


def _waits(part: Mapping[str, Any], policy: RecoveryPolicy) -> bool:
    """Tell whether the page must answer a call."""
    if not _is_call(part):
        return False
    is_open = part.get("state") == ToolState.INPUT_AVAILABLE and part["toolCallId"] in policy.answerable
    return is_open or part.get("state") == ToolState.APPROVAL_REQUESTED


def _kind(parts: Sequence[dict[str, Any]], has_tail: bool, policy: RecoveryPolicy) -> _Kind:
    if any(_waits(part, policy) for part in parts):
        return "waiting"
    if not parts or any(_may_have_run(part) for part in last_step(parts)):
        return "continue"
    return "stuck" if has_tail else "complete"

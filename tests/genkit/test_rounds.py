"""Rounds of tools, however a server streams them: each tool is shown once, and each answer reaches its own call."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.genkit.rounds import INTERRUPTED, Round, ToolRun, tools, upstreams
from usechat import UIMessage
from usechat.client.chat import is_complete_with_approval_responses, is_complete_with_tool_calls
from usechat.errors import PublicError
from usechat.genkit.inputs import agent_input, messages_input

rounds = st.builds(Round, st.lists(tools, min_size=1, max_size=4), upstreams, st.sampled_from(["tool", "approval"]))


def calls_of(message: UIMessage) -> list[Any]:
    return [part for part in message["parts"] if "toolCallId" in part]


def goes_on(message: UIMessage) -> bool:
    """Tell whether a page that sends automatically would do so."""
    return is_complete_with_tool_calls([message]) or is_complete_with_approval_responses([message])


def check_first(played: Round, message: UIMessage) -> None:
    """Check that each tool is shown once, in the state that it has."""
    calls, runs = calls_of(message), played.runs
    assert [(call["type"], call["input"]) for call in calls] == [(f"tool-{run.name}", run.input) for run in runs]
    waiting = "input-available" if played.interrupts == "tool" else "approval-requested"
    for call, run in zip(calls, runs, strict=True):
        assert "preliminary" not in call
        assert call["state"] == (waiting if run.output == INTERRUPTED else "output-available")
        if played.is_interrupted and run.output != INTERRUPTED:
            assert call["output"] == run.output
    if not played.is_interrupted:
        check_outputs(played, calls, [run.output for run in runs])


def check_outputs(played: Round, calls: list[Any], outputs: list[Any]) -> None:
    """Check that calls have their own outputs, or at least outputs of their tool with a mark that says so."""
    names = Counter(run.name for run in played.runs)
    for call, run, output in zip(calls, played.runs, outputs, strict=True):
        is_clear = played.upstream.refs == "given" or not played.upstream.by_completion or names[run.name] == 1
        assert call["output"] == output or not is_clear
        is_marked = call.get("toolMetadata") == {"genkit": {"matchedBy": "order"}}
        assert is_marked or call["output"] == output
    kinds = [[str(value) for value in values] for values in ([call["output"] for call in calls], outputs)]
    assert Counter(kinds[0]) == Counter(kinds[1])


def answered(message: UIMessage, decide: Callable[[int], bool]) -> UIMessage:
    """Return the message after the page has answered each call that waits."""
    parts: list[Any] = []
    for part in message["parts"]:
        wire: Any = part
        if wire.get("state") == "input-available":
            wire = {**wire, "state": "output-available", "output": f"by hand {len(parts)}"}
        elif wire.get("state") == "approval-requested":
            approval = {**wire["approval"], "approved": decide(len(parts))}
            wire = {**wire, "state": "approval-responded", "approval": approval}
        parts.append(wire)
    return {**message, "parts": parts}


def expected(run: ToolRun, call: Any) -> Any:
    """Return what Genkit must find for a call."""
    if run.output != INTERRUPTED:
        return run.output
    return call["output"] if "output" in call else f"{run.city}: {call['approval']['approved']}"


async def check_rest(played: Round, message: UIMessage, order: list[int], build_input: Any) -> None:
    try:
        flow_input = build_input(played.turn(message))
    except PublicError:
        names = Counter(run.name for run in played.runs)
        assert build_input is agent_input
        assert played.upstream.refs == "none"
        assert max(names.values()) > 1
        return
    pending = played.stored() if build_input is agent_input else flow_input.data["messages"][-1]["content"]
    pending = [part for part in pending if "toolRequest" in part]
    answers = played.resolve(pending, flow_input.data["resume"])
    assert answers == [expected(run, call) for run, call in zip(played.runs, calls_of(message), strict=True)]
    done = played.resumed(message, answers, order, pending=pending)
    for call, before, answer in zip(calls_of(done), calls_of(message), answers, strict=True):
        assert call["toolCallId"] == before["toolCallId"]
        denied = before.get("approval", {}).get("approved") is False
        assert call["state"] == ("output-denied" if denied else "output-available")
        assert denied or call["output"] == answer
    assert not goes_on(done)
    assert done["parts"][-1].get("text") == "Thanks."


@given(rounds, st.data())
def test_each_tool_is_shown_once_and_each_answer_reaches_its_call(played: Round, data: st.DataObject) -> None:
    orders = st.permutations(range(len(played.runs)))
    message = played.first(data.draw(orders, "order"))
    check_first(played, message)
    assert played.endings == 1
    assert not goes_on(message)
    if played.is_interrupted:
        decisions = data.draw(st.lists(st.booleans(), min_size=10, max_size=10), "decisions")
        order, build_input = data.draw(orders, "order"), data.draw(st.sampled_from([agent_input, messages_input]))
        given_back = answered(message, decisions.__getitem__)
        assert goes_on(given_back)
        asyncio.run(check_rest(played, given_back, order, build_input))

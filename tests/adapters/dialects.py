"""The answers of scripted models in the dialects that frameworks teach their models."""

import json
from collections.abc import Iterator, Sequence

import msgspec

from usechat.testing import ModelAnswer, ModelCall


def final_answer_tool(answers: Sequence[ModelAnswer]) -> Iterator[ModelAnswer]:
    """smolagents: an answer is a call of the tool `final_answer`; what is said beside a call is thought."""
    for answer in answers:
        if answer.calls or answer.error is not None or answer.pause:
            yield answer
        else:
            final = ModelCall("final_answer", {"answer": "".join(answer.texts)})
            yield ModelAnswer(calls=[final], is_cut_off=answer.is_cut_off)


def agent_tool(answers: Sequence[ModelAnswer]) -> Iterator[ModelAnswer]:
    """Claude Code: another agent is asked with its own tool `Agent`."""
    for answer in answers:
        calls = [_agent_call(call) if call.name.endswith("research") else call for call in answer.calls]
        yield msgspec.structs.replace(answer, calls=calls)


def _agent_call(call: ModelCall) -> ModelCall:
    return ModelCall(
        "Agent", {"subagent_type": "researcher", "description": "Asks.", "prompt": call.arguments["topic"]}
    )


def fields(answers: Sequence[ModelAnswer]) -> Iterator[ModelAnswer]:
    """DSPy: `ReAct` asks for a thought and one call, until the call is `finish`, and then for the answer."""
    for answer in answers:
        text = "".join(answer.texts)
        if answer.error is not None and answer.status != 200:
            yield answer
        elif answer.calls:
            for number, call in enumerate(answer.calls):
                yield _fields(
                    next_thought=text if number == 0 else "",
                    next_tool_name=call.name,
                    next_tool_args=json.dumps(call.arguments),
                )
        else:
            yield _fields(next_thought="", next_tool_name="finish", next_tool_args="{}")
            last = _fields(reasoning="", answer=text)
            streamed = ["[[ ## reasoning ## ]]\n\n", "[[ ## ", "answer", " ## ]]\n", *answer.texts]
            is_whole = answer.error is None and not answer.pause
            yield last if is_whole else msgspec.structs.replace(answer, text=streamed)


def _fields(**fields: str) -> ModelAnswer:
    pieces = [piece for name, value in fields.items() for piece in ("[[ ## ", name, " ## ]]\n", value, "\n\n")]
    return ModelAnswer(text=[*pieces, "[[ ## ", "completed", " ## ]]"])

"""LlamaIndex with the framework: its example and page, workflows and their questions, handoffs, history, telemetry."""

import runpy
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import DocumentBlock, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)

from tests.adapters import llama_index_agent
from tests.adapters.agents import Deeds, Framework
from tests.adapters.examples import FILES, check_example, check_page
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.telemetry import check_failed_turn, check_turn
from tests.adapters.turns import assistant, text, tool, turn_of, user
from usechat.adapters import conversation, llama_index
from usechat.errors import CannotAnswer
from usechat.sources import as_source
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel
from usechat.typescript import types_of, typescript

pytestmark = [
    pytest.mark.live,
    pytest.mark.llama_index,
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
]

LLAMA_INDEX = [framework for framework in RECORDED_FRAMEWORKS if framework.environment == "llama-index"]


def test_the_short_example_answers_and_asks_for_an_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    check_example("llama_index_agent", "agent", monkeypatch)


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    check_page("llama-index", monkeypatch)


@pytest.mark.parametrize("framework", LLAMA_INDEX, ids=lambda framework: framework.name)
def test_a_turn_is_one_span_with_its_tokens_and_its_reason(framework: Framework) -> None:
    check_turn(framework)


@pytest.mark.parametrize("framework", LLAMA_INDEX, ids=lambda framework: framework.name)
def test_a_turn_whose_model_fails_is_a_span_with_the_type_of_the_error(framework: Framework) -> None:
    check_failed_turn(framework)


class Progress(Event):  # type: ignore[misc]
    percent: int


class Asking(Workflow):  # type: ignore[misc]
    """Asks between two steps, as a returned event and with `wait_for_event`."""

    @step  # type: ignore[untyped-decorator]
    async def begin(self, context: Context, event: StartEvent) -> InputRequiredEvent:
        context.write_event_to_stream(Progress(percent=50))
        return InputRequiredEvent(prefix=f"{event.user_msg.content} Where?")

    @step  # type: ignore[untyped-decorator]
    async def end(self, context: Context, event: HumanResponseEvent) -> StopEvent:
        when = await context.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="When?", key=1), requirements={"key": 1}
        )
        return StopEvent(result=f"{event.response}, {when.response}.")


def test_agents_and_workflows_answer_and_nothing_else_does() -> None:
    assert llama_index.source_of(Asking()) is not None
    assert llama_index.source_of("a text") is None
    with pytest.raises(CannotAnswer, match="object of LlamaIndex that cannot answer"):
        as_source(TextBlock(text="Hi"))


def test_questions_of_a_workflow_are_answered_by_the_page() -> None:
    with AgentClient(Asking(), headers={"x-ai-sdk": "7"}, tools={"interrupt": reply}) as client:
        answer = client.ask("Meet me.")
    answer.assert_legal(sdk="7")
    assert answer.text == "In Paris, at noon."
    assert answer.message.data["progress"] == [{"percent": 50}]
    assert [part["value"]["prefix"] for part in answer.message.data["interrupt"]] == ["Meet me. Where?", "When?"]


def reply(question: dict[str, Any]) -> str:
    return "at noon" if question["prefix"] == "When?" else "In Paris"


def test_an_agent_that_takes_over_is_a_lane() -> None:
    handoff = ModelAnswer(calls=[ModelCall("handoff", {"to_agent": "researcher", "reason": "owls"})])
    with ScriptedModel([handoff, "Owls see well."]) as model:
        llm = llama_index_agent.chat_model(model, "chat")
        agents = [FunctionAgent(name=name, description=name, llm=llm, tools=[]) for name in ("assistant", "researcher")]
        with AgentClient(AgentWorkflow(agents, root_agent="assistant"), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("What about owls?")
        assert model.refusals == []
    answer.assert_legal(sdk="7")
    kinds = [part["type"] for part in answer.message.parts]
    assert kinds == ["step-start", "tool-handoff", "step-start", "data-agent", "text"]
    assert (answer.message.data["agent"], answer.text) == ([{"name": "researcher"}], "Owls see well.")


def test_equal_calls_are_approved_and_denied_one_by_one() -> None:
    deeds = Deeds()
    calls = [ModelCall("delete", {"path": "a"}, id=f"call_{number}") for number in (1, 2)]
    with ScriptedModel([ModelAnswer(calls=calls), "One of two."]) as model:
        agent = llama_index_agent.make(model, "chat", deeds)
        approved = iter([False, True])
        with AgentClient(agent, approve=lambda _call: next(approved), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Delete it.")
        assert model.refusals == []
    assert sorted(str(call.state) for call in answer.tools) == ["output-available", "output-denied"]
    assert (deeds.done, answer.text) == (["delete a"], "One of two.")


async def test_a_chat_becomes_messages_of_llama_index() -> None:
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "s"}}}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf", "filename": "a.pdf"}
    note = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    turn = turn_of(
        user("Look.", "u1", image, pdf, note),
        assistant({"type": "step-start"}, signed, weather, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )
    question, tool_step, result, answer, thanks = llama_index.to_llama_index(conversation.history(turn))
    assert question.blocks == [
        TextBlock(text="Look."),
        ImageBlock(image=b"aGk=", image_mimetype="image/png"),
        DocumentBlock(url="https://example.org/a.pdf", title="a.pdf", document_mimetype="application/pdf"),
        TextBlock(text="a.txt:\nhi"),
    ]
    assert tool_step.blocks == [
        ThinkingBlock(content="Hm.", additional_information={"signature": "s"}),
        ToolCallBlock(tool_call_id="c1", tool_name="weather", tool_kwargs={}),
    ]
    assert (result.role, result.content, result.additional_kwargs) == ("tool", '{"celsius":21}', {"tool_call_id": "c1"})
    assert [(each.role, each.content) for each in (answer, thanks)] == [("assistant", "Sunny."), ("user", "Thanks.")]


def test_the_tools_of_an_agent_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    agent = runpy.run_path(str(FILES / "llama_index_agent.py"))["agent"]
    described = typescript(types_of(agent))
    assert "weather: { input: { city: string }" in described
    assert "delete_note: { input: { name: string }" in described


def test_a_blank_line_separates_a_text_file_from_the_question() -> None:
    attached: Any = {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "data": "data:text/plain,hi"}
    [message] = llama_index.to_llama_index([{"role": "user", "content": [attached, {"type": "text", "text": "What?"}]}])
    assert [block.text for block in message.blocks] == ["a.txt:\nhi\n\nWhat?"]

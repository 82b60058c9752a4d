"""The examples and pages of DSPy, Haystack and smolagents, with the frameworks; chats to their own messages."""

import runpy
from collections.abc import Mapping
from typing import Any

import dspy
import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from smolagents import CodeAgent

from tests.adapters.agents import Framework
from tests.adapters.examples import FILES, check_page
from tests.adapters.haystack_agent import chat_model as haystack_model
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.smolagents_agent import chat_model
from tests.adapters.turns import assistant, text, tool, turn_of, user
from usechat.adapters import conversation, haystack, smolagents
from usechat.adapters import dspy as dspy_adapter
from usechat.adapters.smolagents import SmolagentsSource
from usechat.errors import CannotAnswer
from usechat.sources import as_source
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

pytestmark = [pytest.mark.live, pytest.mark.frameworks]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


NEW = [framework for framework in RECORDED_FRAMEWORKS if framework.page in ("dspy", "haystack", "smolagents")]
EXAMPLES = {"dspy": "dspy_program", "haystack": "haystack_agent", "smolagents": "smolagents_agent"}


@pytest.mark.parametrize("framework", NEW, ids=lambda framework: framework.name)
def test_a_short_example_answers_with_its_tool(framework: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    name = EXAMPLES[framework.page]
    weather = ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})])
    assert len((FILES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 40
    with ScriptedModel(framework.answers([weather, "It is 21 °C."])) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        agent = runpy.run_path(str(FILES / f"{name}.py"))["agent"]
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("How is the weather?")
        assert (answer.tools[0].output, answer.text) == ({"city": "Paris", "celsius": 21}, "It is 21 °C.")
        answer.assert_legal(sdk="7")
        assert model.refusals == []


@pytest.mark.parametrize("page", ["dspy", "haystack", "smolagents"])
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_page(page, monkeypatch)


def test_agents_of_haystack_answer_and_pipelines_are_refused_by_name() -> None:
    with ScriptedModel([]) as model:
        assert haystack.source_of(Agent(chat_generator=haystack_model(model))) is not None
    with pytest.raises(CannotAnswer, match=r"Pipeline is an object of Haystack that .*; give an Agent"):
        as_source(Pipeline())


def test_programs_of_dspy_answer_if_their_fields_are_known() -> None:
    for program in (dspy.Predict("question -> answer"), dspy.ChainOfThought("question -> answer")):
        assert dspy_adapter.source_of(program) is not None

    class Own(dspy.Module):  # type: ignore[misc]
        """A module without a signature."""

    with pytest.raises(CannotAnswer, match="name its fields"):
        as_source(Own())
    assert dspy_adapter.DspySource(Own(), question="question", answer="answer") is not None
    two = dspy.Predict("text, language -> translation")
    with pytest.raises(CannotAnswer, match="has the inputs text, language; name the one that the user writes"):
        as_source(two)
    assert as_source(two, context={"language": "French"}) is not None
    assert dspy_adapter.source_of("a text") is None
    with pytest.raises(CannotAnswer, match=r"History is an object of DSPy that .*; give a Module"):
        as_source(dspy.History(messages=[]))


def test_a_program_of_ones_own_that_is_not_async_shows_its_tools_in_order() -> None:
    class Weather(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.look = dspy.Tool(lambda city: {"celsius": len(city)}, name="look", arg_types={"city": str})

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"{self.look(city=question)['celsius']} °C")

    source = dspy_adapter.DspySource(Weather(), question="question", answer="answer")
    with AgentClient(source, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Paris")
    answer.assert_legal(sdk="7")
    assert [(tool.name, tool.input, tool.output) for tool in answer.tools] == [
        ("look", {"city": "Paris"}, {"celsius": 5})
    ]
    assert answer.text == "5 °C"


async def test_no_call_of_a_tool_is_lost_if_the_stream_of_a_program_is_full() -> None:
    class Busy(dspy.Module):  # type: ignore[misc]
        async def aforward(self, question: str) -> dspy.Prediction:
            stream = dspy.settings.send_stream
            for number in range(16):  # as many as the stream holds
                stream.send_nowait(dspy.streaming.StatusMessage(str(number)))
            await dspy.Tool(lambda: "done", name="look").acall()
            return dspy.Prediction(answer=question)

    source = dspy_adapter.DspySource(Busy(), question="question", answer="answer")
    events = [event async for event in source.events(turn_of(user("Hi.")))]
    kinds = [next(iter(event)) for event in events if isinstance(event, Mapping)]
    assert (len(events), kinds) == (19, ["call", "result", "prediction"])


def test_the_code_of_a_code_agent_is_a_tool() -> None:
    print_it = "Thought: easy.\n<code>\nprint(6 * 7)\n</code>"
    answer_it = "Thought: done.\n<code>\nfinal_answer(6 * 7)\n</code>"
    with ScriptedModel([print_it, answer_it]) as model:

        def make(_turn: object) -> CodeAgent:
            return CodeAgent(tools=[], model=chat_model(model), stream_outputs=True, verbosity_level=0)

        with AgentClient(SmolagentsSource(make), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("What is 6 times 7?")
        assert model.refusals == []
    answer.assert_legal(sdk="7")
    first, second = answer.tools
    assert (first.name, first.input) == ("python_interpreter", {"code": "print(6 * 7)"})
    assert "42" in first.output
    assert (second.state, answer.text) == ("output-available", "42")


def chat() -> Any:
    image = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PIXEL}"}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf", "filename": "a.pdf"}
    note = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    failure = tool("dig", "c2", "output-error", errorText="No.")
    return turn_of(
        user("Look.", "u1", image, pdf, note),
        assistant({"type": "step-start"}, weather, failure, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )


async def test_a_chat_becomes_steps_of_smolagents() -> None:
    question, tool_step, answer, thanks = smolagents.to_smolagents(conversation.history(chat()))
    assert (question.task, len(question.task_images)) == ("Look.\n\na.pdf (application/pdf)\n\na.txt:\nhi", 1)
    assert [(call.id, call.name) for call in tool_step.tool_calls] == [("c1", "weather"), ("c2", "dig")]
    assert tool_step.observations == '{"celsius":21}\nNo.'
    assert (answer.model_output, thanks.task) == ("Sunny.", "Thanks.")


async def test_a_chat_becomes_messages_of_haystack() -> None:
    question, tool_step, first, second, answer, thanks = haystack.to_haystack(conversation.history(chat()))
    kinds: Mapping[str, Any] = {"texts": question.texts, "images": [image.base64_image for image in question.images]}
    assert kinds == {"texts": ["Look.", "a.pdf: https://example.org/a.pdf", "a.txt:\nhi"], "images": [PIXEL]}
    assert [(call.id, call.tool_name) for call in tool_step.tool_calls] == [("c1", "weather"), ("c2", "dig")]
    assert [call.extra for call in tool_step.tool_calls] == [{"call_id": "c1"}, {"call_id": "c2"}]
    results = [message.tool_call_result for message in (first, second)]
    assert [(result.result, result.error) for result in results] == [('{"celsius":21}', False), ("No.", True)]
    assert [answer.text, thanks.text] == ["Sunny.", "Thanks."]

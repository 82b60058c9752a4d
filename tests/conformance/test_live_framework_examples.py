"""The examples and pages of the frameworks of the second column, with the frameworks; chats to their own messages."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent as AgentFrameworkAgent
from agent_framework.openai import OpenAIChatClient
from agno.agent import Agent
from agno.team import Team
from agno.tools import Toolkit
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server
from claude_agent_sdk import tool as claude_tool
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel
from strands import Agent as StrandsAgent
from strands import tool as strands_tool
from strands.models.openai import OpenAIModel

from tests.adapters import google_adk_agent
from tests.adapters.examples import FILES, check_example, check_page
from tests.adapters.turns import assistant, text, tool, turn_of, user
from usechat.adapters import agent_framework, agno, claude, conversation, google_adk
from usechat.testing import AgentClient, ScriptedModel
from usechat.typescript import types_of, typescript

pytestmark = [pytest.mark.live, pytest.mark.frameworks]


@pytest.mark.parametrize(
    "name", ["ag_ui_agent", "agent_framework_agent", "agno_agent", "google_adk_agent", "strands_agent"]
)
def test_a_short_example_answers_and_asks_for_an_approval(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_example(name, "agent", monkeypatch)


@pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked for", "ignore:Exception ignored in. <function Mem")
def test_the_example_of_claude_answers_and_asks_for_a_permission(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    monkeypatch.setenv("MAX_THINKING_TOKENS", "0")  # the model would insist on thinking
    check_example("claude_agent", "agent", monkeypatch, prefix="mcp__notes__")


def test_options_of_claude_answer_and_nothing_else_does() -> None:
    assert claude.source_of(ClaudeAgentOptions()) is not None
    assert claude.source_of("a text") is None


@pytest.mark.parametrize("page", ["ag-ui", "agent-framework", "agno", "claude", "google-adk", "strands"])
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_page(page, monkeypatch)


def test_agents_answer_and_nothing_else_does() -> None:
    assert agno.source_of(Agent()) is not None
    assert agno.source_of(Team(members=[Agent()])) is not None
    agent = LlmAgent(name="assistant")
    for candidate in (agent, App(name="demo", root_agent=agent), InMemoryRunner(agent=agent)):
        assert google_adk.source_of(candidate) is not None
    assert agent_framework.source_of(AgentFrameworkAgent(OpenAIChatClient(model="any", api_key="none"))) is not None
    assert [framework.source_of("a text") for framework in (agent_framework, agno, google_adk)] == [None, None, None]


def weather(city: str, days: int = 1) -> int:
    """Tell how warm it will be."""
    return len(city) * days


@pytest.mark.parametrize(
    "agent",
    [
        lambda: Agent(tools=[weather]),
        lambda: Agent(tools=[Toolkit(tools=[weather])]),
        lambda: LlmAgent(name="assistant", tools=[weather]),
        lambda: AgentFrameworkAgent(OpenAIChatClient(model="any", api_key="none"), tools=[weather]),
        lambda: StrandsAgent(
            OpenAIModel(client_args={"api_key": "none"}, model_id="any"), tools=[strands_tool(weather)]
        ),
    ],
    ids=["Agno", "a toolkit of Agno", "Google ADK", "Agent Framework", "Strands"],
)
def test_the_tools_of_an_agent_are_described(agent: Callable[[], Any]) -> None:
    assert "weather: { input: { city: string; days?: number" in typescript(types_of(agent()))


async def test_the_tools_of_claude_are_those_of_servers_in_this_process_and_built_in_ones_by_name() -> None:
    @claude_tool("weather", "Tell how warm it is.", {"city": str})  # type: ignore[untyped-decorator]
    async def weather(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": arguments["city"]}]}

    options = ClaudeAgentOptions(
        tools=["Read"],
        allowed_tools=["Bash(git log *)", "mcp__notes__weather"],
        mcp_servers={
            "notes": create_sdk_mcp_server("notes", tools=[weather]),
            "other": {"type": "http", "url": "https://example.org/mcp"},
        },
    )
    source = typescript(types_of(options))
    assert "weather: { input: { city: string" in source
    assert "Read: { input: unknown; output: unknown }" in source
    assert "Bash: { input: unknown; output: unknown }" in source


def chat() -> Any:
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "s"}}}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf", "filename": "a.pdf"}
    note = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    failure = tool("dig", "c2", "output-error", errorText="No.")
    return turn_of(
        user("Look.", "u1", image, pdf, note),
        assistant({"type": "step-start"}, signed, weather, failure, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )


async def test_a_chat_becomes_messages_of_agno() -> None:
    question, tool_step, first, second, answer, thanks = agno.to_agno(conversation.history(chat()))
    assert (question.content, question.images[0].content, question.files[0].filename) == (
        "Look.\n\na.txt:\nhi",
        b"hi",
        "a.pdf",
    )
    assert [call["id"] for call in tool_step.tool_calls] == ["c1", "c2"]
    assert (tool_step.reasoning_content, tool_step.provider_data) == ("Hm.", {"signature": "s"})
    assert (first.tool_call_id, first.content, first.tool_call_error) == ("c1", '{"celsius":21}', False)
    assert (second.tool_call_id, second.content, second.tool_call_error) == ("c2", "No.", True)
    assert (answer.role, answer.content, thanks.role, thanks.content) == ("assistant", "Sunny.", "user", "Thanks.")


async def test_a_chat_becomes_messages_of_the_agent_framework() -> None:
    messages = agent_framework.to_agent_framework(conversation.history(chat()))
    question, tool_step, results, answer, thanks = [
        [content.to_dict() for content in each.contents] for each in messages
    ]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [content.get("text") or content["uri"] for content in question] == [
        "Look.",
        "data:image/png;base64,aGk=",
        "https://example.org/a.pdf",
        "a.txt:\nhi",
    ]
    assert [(content["call_id"], content["arguments"]) for content in tool_step] == [("c1", "{}"), ("c2", "{}")]
    assert [(content["call_id"], content["result"]) for content in results] == [("c1", '{"celsius":21}'), ("c2", "No.")]
    assert [answer[0]["text"], thanks[0]["text"]] == ["Sunny.", "Thanks."]


async def test_a_chat_becomes_contents_of_gemini() -> None:
    question, tool_step, results, answer, thanks = google_adk.to_google_adk(conversation.history(chat()))
    assert question.parts == [
        types.Part(text="Look."),
        types.Part(inline_data=types.Blob(data=b"hi", mime_type="image/png")),
        types.Part(file_data=types.FileData(file_uri="https://example.org/a.pdf", mime_type="application/pdf")),
        types.Part(text="a.txt:\nhi"),
    ]
    assert [part.function_call.id for part in tool_step.parts] == ["c1", "c2"]
    assert [part.function_response.response for part in results.parts] == [{"celsius": 21}, {"error": "No."}]
    assert [(content.role, content.parts[0].text) for content in (answer, thanks)] == [
        ("model", "Sunny."),
        ("user", "Thanks."),
    ]


class City(BaseModel):
    city: str


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")
def test_the_output_of_an_agent_of_adk_with_a_schema_is_text_and_data() -> None:
    with ScriptedModel(['{"city": "Paris"}']) as model:
        claude_model = google_adk_agent.ScriptedClaude(model="claude-test", url=model.anthropic_url)
        agent = LlmAgent(name="assistant", model=claude_model, output_schema=City)
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Which city?")
        assert model.refusals == []
    answer.assert_legal(sdk="7")
    assert (answer.text, answer.message.data["output"]) == ('{"city": "Paris"}', [{"city": "Paris"}])


def test_a_session_of_adk_that_is_gone_is_filled_with_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel(["Two."]) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.anthropic_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        agent = runpy.run_path(str(FILES / "google_adk_agent.py"))["agent"]
        with AgentClient(agent, messages=[user("One?", "u1"), assistant(text("One."))]) as client:
            assert client.ask("Two?").text == "Two."
        assert model.refusals == []
        assert [message["content"][0]["text"] for message in model.requests[0]["messages"]] == ["One?", "One.", "Two?"]

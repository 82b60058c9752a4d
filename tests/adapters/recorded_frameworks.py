"""The frameworks that `make test` replays from recordings and `make test-frameworks` runs live."""

from typing import Final

from tests.adapters.agents import Framework

_SUB_AGENT: Final = "The text of an agent that a tool runs is the result of the tool call. It is not streamed."
_RAISES: Final = (
    "The framework does not catch the exception of a tool, so the turn ends. The page shows the call as failed."
)
_AG_UI_RAISES: Final = (
    "AG-UI has no event for a failed tool: the page shows the agent's text as the result. With a Pydantic AI agent the"
    " turn also ends."
)
_CUT_OFF: Final = "The framework does not report that the answer was cut off. It looks complete."
_NOT_PASSED_ON: Final = "The framework does not report calls that the provider runs. The page shows only the text."
_NOT_PASSED_ON_BY_ADK: Final = (
    "With Anthropic models the framework does not report calls that the provider runs. The page shows only the text."
)
_AG_UI_MCP: Final = (
    "AG-UI has no field for the server: the page shows the name that Pydantic AI uses, with the tool in the input."
)
_CLAUDE_CONTINUES: Final = "Claude Code asks the model to continue, so the answer becomes complete."
_CLAUDE_LIMITS: Final = {
    "model failure in mid-stream": _CLAUDE_CONTINUES,
    "two approvals in reverse order": "Claude Code asks about one call at a time, in order: the second approval is"
    " requested when the first is answered. Both answers reach their calls.",
    "client tool": "Not tested: Claude Code has no client tools. It runs every tool itself or in an MCP server.",
}
_CLAUDE_NOT_PLAYED: Final = frozenset(
    {
        "a tool that the provider runs",
        "a tool of an MCP server that the provider calls",
        "an answer that is cut off",
        "client tool",
    }
)
_A2A_TOOLS: Final = "A2A has no events for tools. The tools run, but the page shows only the text."
_A2A_REMEMBERS: Final = "A2A cannot remove messages from a context, so the agent also remembers the old version."
_A2A_ASKS: Final = "A2A has no approvals. An agent asks a question with `INPUT_REQUIRED`."
_WHOLE_INPUT: Final = "The input is not streamed: the page shows it when it is complete."
_NO_APPROVALS: Final = "The adapter has no approvals: the tool runs immediately."
_THREAD: Final = "A tool runs in a thread, which cannot be cancelled. The page does not wait for it."
_CHAT_COMPLETIONS: Final = frozenset(
    {"reasoning", "a tool that the provider runs", "a tool of an MCP server that the provider calls"}
)
"""Scripts that are not run with a framework that is tested with OpenAI Chat Completions only."""
_APPROVALS: Final = ("approval", "denial", "two approvals in reverse order", "a new message while an approval waits")
_PROVIDED: Final = {
    "a tool that the provider runs": _NOT_PASSED_ON,
    "a tool of an MCP server that the provider calls": _NOT_PASSED_ON,
}
_AG_UI_LIMITS: Final = {
    "a tool of an MCP server that the provider calls": _AG_UI_MCP,
    "an answer that is cut off": _CUT_OFF,
    "tool failure": _AG_UI_RAISES,
    "sub-agent": _SUB_AGENT,
}
_AGNO_LIMITS: Final = {
    **_PROVIDED,
    "streamed tool input": _WHOLE_INPUT,
    "an answer that is cut off": _CUT_OFF,
}

RECORDED_FRAMEWORKS: Final = (
    Framework(
        name="A2A",
        page="a2a",
        factory="a2a_agent:make",
        adapter="a2a:A2aAdapter",
        apis=("chat",),
        limits={
            "streamed tool input": _A2A_TOOLS,
            "two parallel tools": _A2A_TOOLS,
            "tool failure": "An exception in a tool fails the task of this agent, so the turn fails.",
            "regenerate": _A2A_REMEMBERS,
            "edit": _A2A_REMEMBERS,
            "client tool": "A2A has no client tools. An agent asks a question with `INPUT_REQUIRED`.",
            **dict.fromkeys(_APPROVALS, _A2A_ASKS),
        },
        failed_tool="",
        shows_tools=False,
        not_played=_CHAT_COMPLETIONS | {"an answer that is cut off", "sub-agent"},
        tells_usage=False,
        question="interrupt",
    ),
    Framework(
        name="AG-UI in process",
        page="ag-ui",
        factory="ag_ui_agent:in_process",
        adapter="ag_ui:AgUiAdapter",
        apis=("anthropic",),
        limits=_AG_UI_LIMITS,
        failed_tool="output-available",
    ),
    Framework(
        name="AG-UI at an address",
        page="ag-ui",
        factory="ag_ui_agent:at_an_address",
        adapter="ag_ui:AgUiAdapter",
        apis=("chat", "responses", "anthropic"),
        limits=_AG_UI_LIMITS,
        failed_tool="output-available",
    ),
    Framework(
        name="Agno with a database",
        page="agno",
        factory="agno_agent:with_memory",
        adapter="agno:AgnoAdapter",
        apis=("chat", "anthropic"),
        limits=_AGNO_LIMITS,
    ),
    Framework(
        name="Agno without memory",
        page="agno",
        factory="agno_agent:without_memory",
        adapter="agno:AgnoAdapter",
        apis=("chat", "anthropic"),
        limits=_AGNO_LIMITS,
    ),
    Framework(
        name="Claude Agent SDK",
        page="claude",
        factory="claude_agent:make",
        not_played=_CLAUDE_NOT_PLAYED,
        adapter="claude:ClaudeAdapter",
        apis=("anthropic",),
        limits=_CLAUDE_LIMITS,
        tool_prefix="mcp__demo__",
        asks_one_by_one=True,
        sub_agent_tool="Agent",
        dialect="agent_tool",
    ),
    Framework(
        name="CrewAI",
        page="crewai",
        factory="crewai_agent:make",
        adapter="crewai:CrewAiAdapter",
        apis=("chat", "anthropic"),
        limits={
            "stop in a tool": _THREAD,
            **dict.fromkeys(_APPROVALS, _NO_APPROVALS),
        },
        not_played=_CHAT_COMPLETIONS | {"client tool", "file"},
        environment="crewai",
    ),
    Framework(
        name="CrewAI with Responses",
        page="crewai",
        factory="crewai_agent:make",
        adapter="crewai:CrewAiAdapter",
        apis=("responses",),
        limits={
            "an answer that is cut off": _CUT_OFF,
            "stop in a tool": _THREAD,
            **dict.fromkeys(_APPROVALS, _NO_APPROVALS),
        },
        not_played=_CHAT_COMPLETIONS
        | {"client tool", "file", "model failure in mid-stream", "stop in text", "streamed tool input"},
        keeps_order=False,
        environment="crewai",
    ),
    Framework(
        name="DSPy",
        page="dspy",
        factory="dspy_agent:make",
        adapter="dspy:DspyAdapter",
        apis=("chat",),
        limits={
            "streamed tool input": _WHOLE_INPUT,
            "two parallel tools": "`ReAct` calls one tool at a time.",
            "an answer that is cut off": _CUT_OFF,
            "three turns": "The history contains only text. Tool results of earlier turns are not in it.",
            **dict.fromkeys(_APPROVALS, _NO_APPROVALS),
        },
        not_played=_CHAT_COMPLETIONS | {"client tool", "sub-agent", "file"},
        dialect="fields",
    ),
    Framework(
        name="Google ADK",
        page="google-adk",
        factory="google_adk_agent:make",
        adapter="google_adk:GoogleAdkAdapter",
        apis=("anthropic",),
        limits={
            **dict.fromkeys(_PROVIDED, _NOT_PASSED_ON_BY_ADK),
            "tool failure": _RAISES,
            "sub-agent": _SUB_AGENT,
        },
        tells_reasons=False,
    ),
    Framework(
        name="LlamaIndex with OpenAI",
        page="llama-index",
        factory="llama_index_agent:make",
        adapter="llama_index:LlamaIndexAdapter",
        apis=("chat", "responses"),
        environment="llama-index",
    ),
    Framework(
        name="LlamaIndex with Anthropic",
        page="llama-index",
        factory="llama_index_agent:make",
        adapter="llama_index:LlamaIndexAdapter",
        apis=("anthropic",),
        limits=_PROVIDED,
        environment="llama-index",
    ),
    Framework(
        name="Haystack",
        page="haystack",
        factory="haystack_agent:make",
        adapter="haystack:HaystackAdapter",
        apis=("chat",),
        limits={"sub-agent": _SUB_AGENT, **dict.fromkeys(_APPROVALS, _NO_APPROVALS)},
        not_played=_CHAT_COMPLETIONS | {"client tool"},
    ),
    Framework(
        name="smolagents",
        page="smolagents",
        factory="smolagents_agent:make",
        adapter="smolagents:SmolagentsAdapter",
        apis=("chat",),
        limits={
            "an answer that is cut off": _CUT_OFF,
            "stop in a tool": _THREAD,
            **dict.fromkeys(_APPROVALS, _NO_APPROVALS),
        },
        not_played=_CHAT_COMPLETIONS | {"client tool", "sub-agent", "file"},
        dialect="final_answer_tool",
    ),
    Framework(
        name="Strands",
        page="strands",
        factory="strands_agent:make",
        adapter="strands:StrandsAdapter",
        apis=("chat", "responses", "anthropic"),
        limits=_PROVIDED,
        tells_reasons=False,
        sub_agent="research",
    ),
    Framework(
        name="Agent Framework",
        page="agent-framework",
        factory="agent_framework_agent:make",
        adapter="agent_framework:AgentFrameworkAdapter",
        apis=("responses", "chat"),
        limits={
            "a tool of an MCP server that the provider calls": "The framework does not report the input, so"
            " the page shows the call without it.",
        },
        tells_reasons=False,
    ),
)

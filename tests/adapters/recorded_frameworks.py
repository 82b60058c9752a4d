"""The frameworks that `make test` replays from recordings and `make test-frameworks` runs live."""

from typing import Final

from tests.adapters.agents import Framework

_SUB_AGENT: Final = "The text of an agent that a tool asks is the result of that tool; it is not streamed."
_RAISES: Final = (
    "A tool that raises ends the turn, as the framework lets exceptions pass; the page shows the call as failed."
)
_AG_UI_RAISES: Final = (
    "AG-UI has no event for a tool that failed: the page shows the agent's text as its result. An agent of Pydantic AI"
    " also ends the turn."
)
_CUT_OFF: Final = "The framework does not tell that an answer was cut off; it looks complete."
_NOT_PASSED_ON: Final = "The framework does not pass the calls on that a provider runs itself; the page shows the text."
_AG_UI_MCP: Final = (
    "AG-UI has no name for the server: the page shows the call as Pydantic AI names it, with the tool in its input."
)
_CLAUDE_CONTINUES: Final = "Claude Code asks the model to continue, so the answer is completed."
_CLAUDE_NOT_PLAYED: Final = frozenset(
    {
        "a tool that the provider runs",
        "a tool of an MCP server that the provider calls",
        "an answer that is cut off",
        "client tool",
        "sub-agent",
    }
)
_A2A_TOOLS: Final = "A2A has no events for the tools of an agent: they run, and the page shows the text."
_A2A_REMEMBERS: Final = "A2A cannot remove messages from a context: the agent also remembers what was replaced."
_A2A_ASKS: Final = "A2A has no approvals: an agent asks with `INPUT_REQUIRED`, which is a question."
_NO_APPROVALS: Final = "The adapter has no approvals: the tool runs without asking."
_CHAT_COMPLETIONS: Final = frozenset(
    {"reasoning", "a tool that the provider runs", "a tool of an MCP server that the provider calls"}
)
"""Scripts that a framework does not play which is tested with OpenAI Chat Completions alone."""
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

RECORDED_FRAMEWORKS: Final = (
    Framework(
        name="A2A",
        page="a2a",
        factory="a2a_agent:make",
        adapter="a2a:A2aAdapter",
        apis=("chat",),
        with_every_client=False,
        limits={
            "streamed tool input": _A2A_TOOLS,
            "two parallel tools": _A2A_TOOLS,
            "tool failure": "A tool that raises fails the task of this agent, and so the turn.",
            "regenerate": _A2A_REMEMBERS,
            "edit": _A2A_REMEMBERS,
            "client tool": "A2A has no tools of the page: an agent asks with `INPUT_REQUIRED`, which is a question.",
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
        limits={**_PROVIDED, "an answer that is cut off": _CUT_OFF, "sub-agent": _SUB_AGENT},
    ),
    Framework(
        name="Agno without memory",
        page="agno",
        factory="agno_agent:without_memory",
        adapter="agno:AgnoAdapter",
        apis=("chat", "anthropic"),
        limits={**_PROVIDED, "an answer that is cut off": _CUT_OFF, "sub-agent": _SUB_AGENT},
    ),
    Framework(
        name="Claude Agent SDK",
        page="claude",
        factory="claude_agent:make",
        not_played=_CLAUDE_NOT_PLAYED,
        adapter="claude:ClaudeAdapter",
        apis=("anthropic",),
        limits={"model failure in mid-stream": _CLAUDE_CONTINUES},
        tool_prefix="mcp__demo__",
        asks_one_by_one=True,
    ),
    Framework(
        name="DSPy",
        page="dspy",
        factory="dspy_agent:make",
        adapter="dspy:DspyAdapter",
        apis=("chat",),
        with_every_client=False,
        limits={
            "streamed tool input": "The page shows the whole input when the tool is called.",
            "two parallel tools": "`ReAct` calls one tool after the other.",
            "an answer that is cut off": _CUT_OFF,
            "three turns": "The history has texts alone: the results of tools of earlier turns are left out.",
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
        limits={**_PROVIDED, "tool failure": _RAISES, "sub-agent": _SUB_AGENT},
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
        with_every_client=False,
        limits={"sub-agent": _SUB_AGENT, **dict.fromkeys(_APPROVALS, _NO_APPROVALS)},
        not_played=_CHAT_COMPLETIONS | {"client tool"},
    ),
    Framework(
        name="smolagents",
        page="smolagents",
        factory="smolagents_agent:make",
        adapter="smolagents:SmolagentsAdapter",
        apis=("chat",),
        with_every_client=False,
        limits={
            "an answer that is cut off": _CUT_OFF,
            "stop in a tool": "A tool runs in a thread, which nothing can end; the page does not wait for it.",
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
            "a tool of an MCP server that the provider calls": "The page shows the call without its input, which the"
            " framework does not tell.",
            "sub-agent": _SUB_AGENT,
        },
        tells_reasons=False,
    ),
)

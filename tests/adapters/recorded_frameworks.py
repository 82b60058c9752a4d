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

_GOES_ON: Final = "Claude Code asks the model to go on, so the answer is completed."

_NOT_PLAYED: Final = frozenset(
    {
        "a tool that the provider runs",
        "a tool of an MCP server that the provider calls",
        "an answer that is cut off",
    }
)

RECORDED_FRAMEWORKS: Final = (
    Framework(
        name="AG-UI in process",
        page="ag-ui",
        factory="ag_ui_agent:in_process",
        not_played=_NOT_PLAYED,
        adapter="ag_ui:AgUiAdapter",
        apis=("anthropic",),
        limits={"tool failure": _AG_UI_RAISES, "sub-agent": _SUB_AGENT},
        failed_tool="output-available",
    ),
    Framework(
        name="AG-UI at an address",
        page="ag-ui",
        factory="ag_ui_agent:at_an_address",
        not_played=_NOT_PLAYED,
        adapter="ag_ui:AgUiAdapter",
        apis=("chat", "responses", "anthropic"),
        limits={"tool failure": _AG_UI_RAISES, "sub-agent": _SUB_AGENT},
        failed_tool="output-available",
    ),
    Framework(
        name="Agno with a database",
        page="agno",
        factory="agno_agent:with_memory",
        not_played=_NOT_PLAYED,
        adapter="agno:AgnoAdapter",
        apis=("chat", "anthropic"),
        limits={"sub-agent": _SUB_AGENT},
    ),
    Framework(
        name="Agno without memory",
        page="agno",
        factory="agno_agent:without_memory",
        not_played=_NOT_PLAYED,
        adapter="agno:AgnoAdapter",
        apis=("chat", "anthropic"),
        limits={"sub-agent": _SUB_AGENT},
    ),
    Framework(
        name="Claude Agent SDK",
        page="claude",
        factory="claude_agent:make",
        not_played=_NOT_PLAYED | {"client tool", "sub-agent"},
        adapter="claude:ClaudeAdapter",
        apis=("anthropic",),
        limits={"model failure in mid-stream": _GOES_ON},
        tool_prefix="mcp__demo__",
        asks_one_by_one=True,
    ),
    Framework(
        name="Google ADK",
        page="google-adk",
        factory="google_adk_agent:make",
        not_played=_NOT_PLAYED,
        adapter="google_adk:GoogleAdkAdapter",
        apis=("anthropic",),
        limits={"tool failure": _RAISES, "sub-agent": _SUB_AGENT},
        tells_reasons=False,
    ),
)

"""The agent of the scripts as an agent of CrewAI. Nothing of CrewAI leaves the machine: import this module first."""

import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "CREWAI_TESTING": "true"}
os.environ.setdefault("CREWAI_STORAGE_DIR", tempfile.mkdtemp(prefix="crewai-"))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # of a lazy module of CrewAI
    from crewai import LLM, Agent
    from crewai.tools import BaseTool
from pydantic import create_model

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.testing import ScriptedModel


def chat_model(model: ScriptedModel, api: Api) -> Any:
    if api == "anthropic":
        return LLM("anthropic/claude-sonnet-4-5", base_url=model.anthropic_url, api_key="none", max_retries=0)
    more = {"api": "responses"} if api == "responses" else {}
    return LLM("openai/gpt-4o", base_url=model.openai_url, api_key="none", max_retries=0, **more)


def tool(tool_name: str, function: Callable[..., Any], argument: str) -> BaseTool:
    class Made(BaseTool):  # type: ignore[misc]
        name: str = tool_name
        description: str = "Do what its name says."
        args_schema: type[Any] = create_model(tool_name, **{argument: (str, ...)})  # type: ignore[call-overload]

        def _run(self, **arguments: str) -> Any:
            return function(**arguments)

    return Made()


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    researcher = Agent(role="researcher", goal="Find out.", backstory="Be exact.", llm=chat_model(model, api))

    def research(topic: str) -> str:
        return str(researcher.copy().kickoff(topic).raw)

    tools = [
        tool("weather", deeds.weather, "city"),
        tool("clock", deeds.clock, "zone"),
        tool("broken", deeds.broken, "reason"),
        tool("slow", deeds.slow_in_a_thread, "task"),
        tool("delete", deeds.delete, "path"),
        tool("research", research, "topic"),
    ]
    llm = chat_model(model, api)
    return Agent(role="assistant", goal="Answer.", backstory=INSTRUCTIONS, llm=llm, tools=tools)

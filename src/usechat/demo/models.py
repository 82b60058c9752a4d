"""Which model the demo's agents use: its own script, or any that pydantic-ai knows."""

from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model

from usechat.demo.script import researcher, writer
from usechat.errors import CannotUseModel
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry

__all__ = [
    "MODEL_VARIABLE",
    "SCRIPT",
    "registry_for",
]


MODEL_VARIABLE: Final = "USECHAT_DEMO_MODEL"
"""Tells the server's process which model was chosen."""
SCRIPT: Final = "script"


def registry_for(model: str) -> NodeRegistry:
    """Return the models of the flow's researcher and writer."""
    registry = default_registry()
    if model == SCRIPT:
        registry.add_model("researcher", researcher())
        registry.add_model("writer", writer())
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
        reason, _, _ = " ".join(str(error).split()).partition(" or pass ")  # an argument that no command has
        has_no_hint = reason.startswith("Unknown") and not reason.endswith("?")
        hint = "; give a name such as openai:gpt-5" if has_no_hint else ""
        raise CannotUseModel(f"--model {name}: {reason}{hint}") from None

"""Which model the demo's agent uses: its own script, or any that pydantic-ai knows."""

from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model

from usechat.demo.script import script
from usechat.errors import CannotStart
from usechat.open_harness import NodeRegistry, default_registry

__all__ = ["MODEL_VARIABLE", "SCRIPT", "registry_for"]


MODEL_VARIABLE: Final = "USECHAT_DEMO_MODEL"
"""Tells the server's process which model was chosen."""
SCRIPT: Final = "script"


def registry_for(model: str) -> NodeRegistry:
    """Return the registry with the model of the flow's agent."""
    registry = default_registry()
    registry.add_model("guide", script() if model == SCRIPT else _known(model))
    return registry


def _known(name: str) -> Any:
    """Return a model of pydantic-ai; its key must be there."""
    try:
        return infer_model(name)
    except (ImportError, UserError, ValueError) as error:
        reason, _, _ = " ".join(str(error).split()).partition(" or pass ")  # an argument that no command has
        has_no_hint = reason.startswith("Unknown") and not reason.endswith("?")
        hint = "; give a name such as openai:gpt-5" if has_no_hint else ""
        raise CannotStart(f"--model {name}: {reason}{hint}") from None

"""Which model the demo's agents use: its own script, any that pydantic-ai knows, or a small one on this machine."""

from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model

from usechat.demo.script import researcher, writer
from usechat.errors import UsechatError
from usechat.open_harness.registry import NodeRegistry, default_registry

__all__ = ["MODEL_VARIABLE", "SCRIPT", "CannotUseModel", "registry_for"]

MODEL_VARIABLE: Final = "USECHAT_DEMO_MODEL"
"""Tells the server's process which model was chosen."""
SCRIPT: Final = "script"
_LOCAL: Final = "local"


class CannotUseModel(UsechatError):
    """The model is not known, or something that it needs is missing; the text says what."""


def registry_for(model: str) -> NodeRegistry:
    """Return the models of the flow's researcher and writer."""
    registry = default_registry()
    if model == SCRIPT:
        registry.add_model("researcher", researcher())
        registry.add_model("writer", writer())
    elif model == _LOCAL:
        from usechat.demo.local_model import local_model

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

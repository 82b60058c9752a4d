"""Which model answers questions about usechat: the demo's own script, or any that pydantic-ai knows."""

from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model

from usechat.demo.script import script
from usechat.errors import CannotStart

__all__ = ["MODEL_VARIABLE", "SCRIPT", "model_for"]


MODEL_VARIABLE: Final = "USECHAT_DEMO_MODEL"
"""Tells the server's process which model was chosen."""
SCRIPT: Final = "script"


def model_for(name: str) -> Any:
    """Return a model by its name; its key must be there."""
    if name == SCRIPT:
        return script()
    try:
        return infer_model(name)
    except (ImportError, UserError, ValueError) as error:
        reason, _, _ = " ".join(str(error).split()).partition(" or pass ")  # an argument that no command has
        has_no_hint = reason.startswith("Unknown") and not reason.endswith("?")
        hint = "; give a name such as openai:gpt-5" if has_no_hint else ""
        raise CannotStart(f"--model {name}: {reason}{hint}") from None

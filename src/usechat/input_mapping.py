"""Where the keys of an agent's input come from: the text of the message, or a field of the request body.

Flows and Genkit flows take objects of any kind. ``{"topic": "text", "depth": "body.depth"}`` says that ``topic`` is the
text of the message and ``depth`` the field of that name; ``topic=text,depth=body.depth`` says the same on the command
line. In ``body.a.b`` each name is a field of the object before it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from usechat.errors import InvalidSetting

if TYPE_CHECKING:
    from usechat.turn import Turn

__all__ = ["mapped_values", "read_mapping", "require_sources"]


def read_mapping(text: str) -> dict[str, str]:
    """Read ``topic=text,depth=body.depth``; raise InvalidSetting if it is something else.

    >>> read_mapping("topic=text, depth=body.depth")
    {'topic': 'text', 'depth': 'body.depth'}
    """
    pairs = [tuple(each.strip() for each in pair.partition("=")) for pair in text.split(",")]
    if not all(key and source for key, _, source in pairs):
        raise InvalidSetting(
            f"--input {text!r} maps nothing; write KEY=text or KEY=body.FIELD, with commas between them"
        )
    mapping = {key: source for key, _, source in pairs}
    if len(mapping) < len(pairs):
        raise InvalidSetting(f"--input {text!r} names a key twice; give each key one source")
    return mapping


def require_sources(mapping: Mapping[str, str]) -> None:
    """Raise InvalidSetting for a key whose source is neither ``text`` nor ``body.FIELD``.

    >>> require_sources({"topic": "header"})
    Traceback (most recent call last):
    usechat.errors.InvalidSetting: input: 'topic' can come from text or from body.FIELD, not from 'header'
    """
    for key, source in mapping.items():
        root, *fields = source.split(".")
        is_field = root == "body" and bool(fields) and all(fields)
        if not key or not (source == "text" or is_field):
            raise InvalidSetting(f"input: {key!r} can come from text or from body.FIELD, not from {source!r}")


def mapped_values(mapping: Mapping[str, str], turn: "Turn") -> dict[str, Any]:
    """Return the values of the keys; those that the request does not have are left out.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(lambda turn: str(mapped_values({"topic": "text"}, turn))) as client:
    ...     client.ask("bees").text
    "{'topic': 'bees'}"
    """
    values = {key: _value_at(turn, source) for key, source in mapping.items()}
    return {key: value for key, value in values.items() if value is not None}


def _value_at(turn: "Turn", source: str) -> Any:
    if source == "text":
        return turn.text
    value: Any = turn.body
    for field in source.split(".")[1:]:
        value = value.get(field) if isinstance(value, Mapping) else None
    return value

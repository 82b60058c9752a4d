"""How a stored answer grows: only what is new is written, so that a long answer costs linear time. No I/O.

A *growth* is the difference between two states of a message, as small as JSON allows: a text that got longer becomes
its new end. Applying it to the first state gives the second.

>>> before = {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "Hel", "state": "streaming"}]}
>>> after = {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "Hello", "state": "streaming"}]}
>>> growth = difference(before, after)
>>> growth
{'texts': {'0': 'lo'}}
>>> grown(before, growth) == after
True
"""

from typing import Any, Final, TypeAlias, cast

from usechat.protocol.ui_messages import UIMessage

__all__ = ["Growth", "difference", "grown"]

Growth: TypeAlias = dict[str, Any]
"""``fields``: all keys besides ``parts``, if one changed; ``count``: how many parts are left, if some are gone;
``texts``: what is added to the text of a part, by its index; ``parts``: parts that are new or changed, by their
index."""

_TEXTS: Final = ("text", "reasoning")


def difference(before: UIMessage, after: UIMessage) -> Growth:
    """Return what turns ``before`` into ``after``; empty if they are equal."""
    growth: Growth = {}
    fields = {key: value for key, value in after.items() if key != "parts"}
    if fields != {key: value for key, value in before.items() if key != "parts"}:
        growth["fields"] = fields
    if len(after["parts"]) < len(before["parts"]):
        growth["count"] = len(after["parts"])
    for index, part in enumerate(after["parts"]):
        earlier = before["parts"][index] if index < len(before["parts"]) else None
        if part == earlier:
            continue
        text = None if earlier is None else _added_text(cast("dict[str, Any]", earlier), cast("dict[str, Any]", part))
        kind, change = ("parts", part) if text is None else ("texts", text)
        growth.setdefault(kind, {})[str(index)] = change
    return growth


def grown(before: UIMessage, growth: Growth) -> UIMessage:
    """Return the message after a growth; ``before`` is left as it is."""
    parts: list[Any] = list(before["parts"][: growth.get("count", len(before["parts"]))])
    for index, text in growth.get("texts", {}).items():
        part = parts[int(index)]
        parts[int(index)] = {**part, "text": part["text"] + text}
    for index, part in sorted(growth.get("parts", {}).items(), key=lambda item: int(item[0])):
        parts[int(index) : int(index) + 1] = [part]
    fields = growth.get("fields") or {key: value for key, value in before.items() if key != "parts"}
    return cast("UIMessage", {**fields, "parts": parts})


def _added_text(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """Return what was added to a text part; nothing if anything else changed."""
    if after["type"] not in _TEXTS or not after["text"].startswith(before.get("text", "\0")):
        return None
    # Compared without a copy of the texts, which may be long.
    if len(before) != len(after) or any(before.get(key) != value for key, value in after.items() if key != "text"):
        return None
    return str(after["text"][len(before["text"]) :])

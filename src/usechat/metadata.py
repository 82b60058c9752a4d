"""How a client merges message metadata: objects deeply, everything else replaced (``mergeObjects`` of ``ai``)."""

from typing import Any, Final

from usechat.dialects import Release, reads
from usechat.values import json_text

__all__ = ["merge_metadata"]

_PROTOTYPE_KEYS: Final = frozenset({"__proto__", "constructor", "prototype"})
_ARRAY_INDEX_LIMIT: Final = 2**32 - 1


def merge_metadata(base: Any, override: Any, release: Release) -> Any:
    """Return ``base`` with ``override`` merged into it, as this release's client stores it.

    Use objects: other values follow JavaScript's rules (arrays and texts become objects by index), and a text, number
    or boolean cannot be merged into; that raises TypeError with JavaScript's own words.
    """
    changes = _members(override)
    if reads(release, "metadata-skips-prototype-keys"):
        changes = {key: item for key, item in changes.items() if key not in _PROTOTYPE_KEYS}
    if changes and not isinstance(base, dict | list):
        text = base if isinstance(base, str) else json_text(base)
        raise TypeError(f"Cannot use 'in' operator to search for '{_first(changes)}' in {text}")
    merged = dict(_members(base))
    for key, item in changes.items():
        current = merged.get(key)
        both_objects = isinstance(current, dict) and isinstance(item, dict)
        merged[key] = merge_metadata(current, item, release) if both_objects else item
    return merged


def _members(value: Any) -> dict[str, Any]:
    """Return what ``{...value}`` gives in JavaScript, where a text is a list of UTF-16 units."""
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        units = value.encode("utf-16-le", "surrogatepass")
        value = [units[index : index + 2].decode("utf-16-le", "surrogatepass") for index in range(0, len(units), 2)]
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else {}


def _first(members: dict[str, Any]) -> str:
    """Return the key that JavaScript visits first: the smallest array index, else the one written first."""
    indexes = [key for key in members if key.isdecimal() and key.isascii() and key == str(int(key))]
    indexes = [key for key in indexes if int(key) < _ARRAY_INDEX_LIMIT]
    return min(indexes, key=int, default=next(iter(members)))

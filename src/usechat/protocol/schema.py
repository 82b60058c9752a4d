"""Judge whether a JSON value is a legal chunk for a release: the AI SDK's own schemas as one table, with reasons.

:func:`flaws` judges one parsed value as the client does with zod 4.4 or later, where a missing ``input``, ``output``
or ``data`` is fatal. It says everything that is wrong, not only the first thing. The table is made from the Structs of
:mod:`usechat.protocol.chunks` and the releases of :mod:`usechat.protocol.releases`.
"""

import enum
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

import msgspec

from usechat.protocol.chunks import CHUNK_TYPES, DataChunk
from usechat.protocol.releases import CHUNKS, FINISH_REASONS, MAJORS, STRICT_UNTIL, ChunkRow, Release, Since
from usechat.protocol.values import json_text

__all__ = ["Flaw", "FlawKind", "chunk_fields", "flaws", "is_alike", "is_strict", "is_without_effect"]


class FlawKind(enum.Enum):
    """In which way a value is no legal chunk."""

    NOT_AN_OBJECT = enum.auto()
    NO_TYPE = enum.auto()
    UNKNOWN_TYPE = enum.auto()
    UNSUPPORTED_TYPE = enum.auto()
    """A type that other releases know."""
    MISSING_KEY = enum.auto()
    NULL = enum.auto()
    WRONG_TYPE = enum.auto()
    PROVIDER_METADATA = enum.auto()
    FINISH_REASON = enum.auto()
    UNKNOWN_KEY = enum.auto()
    """A key that no release knows, on a release that takes no other keys."""
    UNSUPPORTED_KEY = enum.auto()
    """A key that other releases know, on a release that takes no other keys."""


class Flaw(NamedTuple):
    """One reason to reject a chunk; ``path`` is the place, such as ``$.delta``."""

    kind: FlawKind
    path: str
    text: str
    expected: str = ""
    """What the value should have been, if its type is wrong: ``a string``."""


Check: TypeAlias = Callable[[Any, str], Iterator[Flaw]]


class _KeyRule(NamedTuple):
    required: bool
    check: Check


class _Schema(NamedTuple):
    rules: Mapping[str, _KeyRule]
    keys: frozenset[str]
    elsewhere: Mapping[str, Since]
    """Keys that this release does not know and others do."""


def flaws(value: Any, release: Release) -> list[Flaw]:
    """Return every reason for which ``release`` rejects the chunk; an empty list means that it accepts it."""
    if not isinstance(value, dict):
        return [Flaw(FlawKind.NOT_AN_OBJECT, "$", f"a chunk is a JSON object, not {_describe(value)}")]
    chunk_type = value.get("type")
    if not isinstance(chunk_type, str):
        text = (
            f"'type' must be a string, not {_describe(chunk_type)}" if "type" in value else "the key 'type' is missing"
        )
        return [Flaw(FlawKind.NO_TYPE, "$.type", text)]
    name = _name_in_table(chunk_type)
    schema = _schema(name, release)
    if schema is None:
        return [_unknown_type(chunk_type, CHUNKS.get(name))]
    chunk_flaws = list(_object_flaws(value, schema.rules, "$"))
    if is_strict(release):
        chunk_flaws += [_unknown_key(key, schema) for key in value if key not in schema.rules]
    return chunk_flaws


def chunk_fields(chunk_type: str, release: Release) -> frozenset[str] | None:
    """Return the keys that a release knows on a chunk type (``data`` for all ``data-*``); None if not even the type."""
    schema = _schema(chunk_type, release)
    return None if schema is None else schema.keys - {"type"}


def is_alike(chunk: dict[str, Any], release: Release) -> bool:
    """Tell whether a release judges a chunk as the newest release does: it knows the type and all the keys."""
    chunk_type = chunk["type"]
    schema = _schema(_name_in_table(chunk_type), release)
    # Of all values, only finish reasons are judged differently from release to release.
    return schema is not None and chunk_type != "finish" and chunk.keys() <= schema.keys


def is_strict(release: Release) -> bool:
    """Tell whether the release rejects a chunk for one key that it does not know."""
    return release <= STRICT_UNTIL[release.major]


def is_without_effect(chunk_type: str, release: Release) -> bool:
    """Tell whether the release accepts this chunk type and then ignores it: relics of the first releases of 5."""
    return chunk_type in _RELICS and not _RELICS_GONE.includes(release)


def _describe(value: Any) -> str:
    """Name a JSON value for a person: ``null``, ``the number 5``, ``an object``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {json_text(value)}" if math.isfinite(value) else "a number too large for JavaScript"
        case str():
            return "the empty string" if value == "" else f"the string {json_text(_shortened(value))}"
        case list():
            return "an array"
        case _:
            return "an object"


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _object_flaws(value: dict[str, Any], fields: Mapping[str, _KeyRule], path: str) -> Iterator[Flaw]:
    for key, field in fields.items():
        if key in value:
            yield from field.check(value[key], f"{path}.{key}")
        elif field.required:
            yield Flaw(FlawKind.MISSING_KEY, f"{path}.{key}", f"the key '{key}' is missing")


def _name_in_table(chunk_type: str) -> str:
    """Return the row of a chunk type: ``data`` for all ``data-*``, and nothing for the type ``data`` itself."""
    if chunk_type.startswith("data-"):
        return "data"
    return "" if chunk_type == "data" else chunk_type


def _unknown_type(chunk_type: str, row: ChunkRow | None) -> Flaw:
    name = json_text(_shortened(chunk_type))
    if row is None:
        return Flaw(FlawKind.UNKNOWN_TYPE, "$.type", f"no AI SDK release knows the chunk type {name}")
    return Flaw(
        FlawKind.UNSUPPORTED_TYPE, "$.type", f"the chunk type {name} came with AI SDK {_first_releases(row.since)}"
    )


def _unknown_key(key: str, schema: _Schema) -> Flaw:
    since = schema.elsewhere.get(key)
    if since is None:
        return Flaw(FlawKind.UNKNOWN_KEY, f"$.{key}", f"the key '{_shortened(key)}' is unknown")
    return Flaw(FlawKind.UNSUPPORTED_KEY, f"$.{key}", f"the key '{key}' came with AI SDK {_first_releases(since)}")


def _first_releases(since: Since) -> str:
    first = [f"{major}.0.{patch}" for major, patch in zip(MAJORS, since, strict=True) if patch is not None]
    return " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)


# ---- what a value must be ----


def _wrong(expected: str, value: Any, path: str) -> Flaw:
    kind = FlawKind.NULL if value is None else FlawKind.WRONG_TYPE
    return Flaw(kind, path, f"{_name(path)} must be {expected}, not {_describe(value)}", expected)


def _name(path: str) -> str:
    return f"'{path.removeprefix('$.')}'"


def _anything(_value: Any, _path: str) -> Iterator[Flaw]:
    return iter(())


def _string(value: Any, path: str) -> Iterator[Flaw]:
    if not isinstance(value, str):
        yield _wrong("a string", value, path)


def _boolean(value: Any, path: str) -> Iterator[Flaw]:
    if not isinstance(value, bool):
        yield _wrong("true or false", value, path)


def _index(value: Any, path: str) -> Iterator[Flaw]:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (value == value // 1 and 0 <= value < 2**53)
    ):
        yield _wrong("a whole number from 0 on", value, path)


def _only_objects(check: Check) -> Check:
    """Return the check of an object; every other value is wrong to begin with."""

    def checked(value: Any, path: str) -> Iterator[Flaw]:
        return check(value, path) if isinstance(value, dict) else iter([_wrong("an object", value, path)])

    return checked


@_only_objects
def _json_object(value: Any, path: str) -> Iterator[Flaw]:
    if _has_infinity(value):
        yield Flaw(FlawKind.WRONG_TYPE, path, f"{_name(path)} holds a number too large for JavaScript")


@_only_objects
def _provider_metadata(value: Any, path: str) -> Iterator[Flaw]:
    for provider, metadata in value.items():
        if not isinstance(metadata, dict):
            text = (
                f"{_name(path)} must hold one object per provider; under {json_text(provider)} is {_describe(metadata)}"
            )
            yield Flaw(FlawKind.PROVIDER_METADATA, f"{path}.{provider}", text)
        else:
            yield from _json_object(metadata, f"{path}.{provider}")


def _has_infinity(value: Any) -> bool:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, float) and math.isinf(node):
            return True
    return False


def _one_of(*accepted: str) -> Check:
    expected = " or ".join(f'"{text}"' for text in accepted)

    def check(value: Any, path: str) -> Iterator[Flaw]:
        if value not in accepted:
            yield _wrong(expected, value, path)

    return check


def _finish_reason(release: Release) -> Check:
    accepted = [reason for reason, since in FINISH_REASONS.items() if since.includes(release)]

    def check(value: Any, path: str) -> Iterator[Flaw]:
        if not isinstance(value, str):
            yield _wrong("a string", value, path)
        elif value not in accepted:
            text = f"the finish reason {json_text(_shortened(value))} is unknown"
            yield Flaw(FlawKind.FINISH_REASON, path, text)

    return check


def _array_of(check_item: Check) -> Check:
    def check(value: Any, path: str) -> Iterator[Flaw]:
        if not isinstance(value, list):
            yield _wrong("an array", value, path)
            return
        for number, item in enumerate(value):
            yield from check_item(item, f"{path}[{number}]")

    return check


def _object_by(key: str, variants: Mapping[str, Mapping[str, _KeyRule]]) -> Check:
    """Return the check of an object whose ``key`` says which of several shapes it has."""
    check_key = _one_of(*variants)

    def check(value: Any, path: str) -> Iterator[Flaw]:
        if wrong := list(check_key(value.get(key), f"{path}.{key}")):
            return iter(wrong)
        return _object_flaws(value, variants[value[key]], path)

    return _only_objects(check)


def _object(fields: Mapping[str, _KeyRule]) -> Check:
    return _only_objects(lambda value, path: _object_flaws(value, fields, path))


@_only_objects
def _string_values(value: Any, path: str) -> Iterator[Flaw]:
    for key, item in value.items():
        yield from _string(item, f"{path}.{key}")


_TEXT: Final = _KeyRule(True, _string)
_TEXT_OR_NONE: Final = _KeyRule(False, _string)
_METADATA: Final = _KeyRule(False, _provider_metadata)

_CITATION: Final = _object(
    {
        "source": _KeyRule(
            True,
            _object_by(
                "sourceType",
                {
                    "url": {
                        "type": _KeyRule(True, _one_of("source")),
                        "id": _TEXT,
                        "url": _TEXT,
                        "title": _TEXT_OR_NONE,
                        "providerMetadata": _METADATA,
                    },
                    "document": {
                        "type": _KeyRule(True, _one_of("source")),
                        "id": _TEXT,
                        "mediaType": _TEXT,
                        "title": _TEXT,
                        "filename": _TEXT_OR_NONE,
                        "providerMetadata": _METADATA,
                    },
                },
            ),
        ),
        "startIndex": _KeyRule(False, _index),
        "endIndex": _KeyRule(False, _index),
        "citedText": _TEXT_OR_NONE,
    }
)
_STEERING_PART: Final = _object_by(
    "type",
    {
        "text": {"text": _TEXT, "providerMetadata": _METADATA},
        "file": {
            "mediaType": _TEXT,
            "url": _TEXT,
            "filename": _TEXT_OR_NONE,
            "providerReference": _KeyRule(False, _string_values),
            "providerMetadata": _METADATA,
        },
    },
)

_CHECKS: Final[Mapping[Any, Check]] = {
    Any: _anything,
    str: _string,
    bool: _boolean,
    dict[str, Any]: _json_object,
    dict[str, dict[str, Any]]: _provider_metadata,
}
_CHECKS_BY_KEY: Final = {
    ("text-end", "citations"): _array_of(_CITATION),
    ("steering-message", "parts"): _array_of(_STEERING_PART),
}

# ---- the table ----

_RELICS: Final[Mapping[str, Mapping[str, _KeyRule]]] = {
    "reasoning": {"text": _TEXT, "providerMetadata": _METADATA},
    "reasoning-part-finish": {},
}
"""Types that the schemas of 5.0.0 to 5.0.51 list, that nothing ever sent and that the reader ignores."""
_RELICS_GONE: Final = Since(52, 0, 0)
_TYPE: Final = _KeyRule(True, _anything)


@functools.lru_cache(maxsize=1024)
def _schema(chunk_type: str, release: Release) -> _Schema | None:
    if is_without_effect(chunk_type, release):
        return _make_schema(_RELICS[chunk_type], {})
    row = CHUNKS.get(chunk_type)
    if row is None or not row.since.includes(release):
        return None
    struct = CHUNK_TYPES.get(chunk_type, DataChunk)
    fields = {
        field.encode_name: _KeyRule(field.required, _check_of(chunk_type, field, release))
        for field in msgspec.structs.fields(struct)
        if field.name not in ("type", "extra")
    }
    since = {key: row.fields.get(key, row.since) for key in fields}
    rules = {key: field for key, field in fields.items() if since[key].includes(release)}
    return _make_schema(rules, {key: since[key] for key in fields if key not in rules})


def _make_schema(rules: Mapping[str, _KeyRule], elsewhere: Mapping[str, Since]) -> _Schema:
    return _Schema({"type": _TYPE, **rules}, frozenset({"type", *rules}), elsewhere)


def _check_of(chunk_type: str, field: msgspec.structs.FieldInfo, release: Release) -> Check:
    if (chunk_type, field.encode_name) in _CHECKS_BY_KEY:
        return _CHECKS_BY_KEY[chunk_type, field.encode_name]
    if field.encode_name == "finishReason":
        return _finish_reason(release)
    kind = next((kind for kind in get_args(field.type) if kind is not NoneType), field.type)
    return _one_of(*get_args(kind)) if get_origin(kind) is Literal else _CHECKS[kind]

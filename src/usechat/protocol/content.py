"""Convert content that stands by itself (files, sources, data) to chunks, in the shapes that clients demand."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, assert_never, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import fields

from usechat.errors import LocalProtocolError
from usechat.protocol import chunks, parts
from usechat.protocol.chunks import Chunk
from usechat.protocol.mcp_apps import URI_SCHEME
from usechat.protocol.releases import Releases
from usechat.protocol.values import json_object, json_value

__all__ = [
    "ContentPart",
    "check_part",
    "content_chunk",
    "is_citation",
    "metadata",
    "omit_false",
    "omit_none",
    "provider_metadata",
]

ContentPart: TypeAlias = (
    parts.SourceUrl
    | parts.SourceDocument
    | parts.File
    | parts.ReasoningFile
    | parts.Custom
    | parts.Data
    | parts.SteeringMessage
)


_Checks: TypeAlias = tuple[tuple[str, tuple[type, ...], str], ...]


def _checks_of(part: type[parts.Part]) -> _Checks:
    """Return the fields of a part that must be of a plain type, those types, and their names for people."""
    kinds: dict[Any, tuple[tuple[type, ...], str]] = {
        str: ((str,), "a str"),
        str | None: ((str, type(None)), "a str"),
        bool: ((bool,), "a bool"),
        bool | None: ((bool, type(None)), "a bool"),
        tuple[Mapping[str, Any], ...]: ((tuple, list), "a tuple of mappings"),
        tuple[Mapping[str, Any], ...] | None: ((tuple, list, type(None)), "a tuple of mappings"),
    }
    return tuple((field.name, *kinds[field.type]) for field in fields(part) if field.type in kinds)


_CHECKS: Final[Mapping[type[Any], _Checks]] = {part: _checks_of(part) for part in get_args(parts.Part)}


def check_part(part: object) -> None:
    """Refuse what is no part, or a part with a field of the wrong type: parts are not checked when they are built."""
    checks = _CHECKS.get(type(part))
    if checks is None:
        hint = "; wrap it: Text(…)" if isinstance(part, str) else ""
        raise LocalProtocolError(f"expected a part of usechat.parts, not {type(part).__name__}{hint}")
    for name, kinds, expected in checks:
        value = getattr(part, name)
        if not isinstance(value, kinds):
            raise LocalProtocolError(
                f"{type(part).__name__}.{name} must be {expected}, not {type(value).__name__}", chunk_id=name
            )
    if isinstance(part, parts.ToolCall | parts.ToolResult) and part.app is not None:
        _check_app(part, part.app)
    if isinstance(part, parts.ToolInputStart) and part.input_encoding not in (None, "json", "text"):
        raise LocalProtocolError("ToolInputStart.input_encoding must be 'json' or 'text'", chunk_id="input_encoding")


def _check_app(part: parts.ToolCall | parts.ToolResult, app: object) -> None:
    what = f"{type(part).__name__}.app"
    if not isinstance(app, parts.McpApp):
        raise LocalProtocolError(f"{what} must be a McpApp, not {type(app).__name__}", chunk_id="app")
    try:
        msgspec.convert(msgspec.to_builtins(app), parts.McpApp)
    except (msgspec.ValidationError, TypeError) as error:
        raise LocalProtocolError(f"{what} is no valid McpApp: {error}", chunk_id="app") from None
    if not app.resource_uri.startswith(URI_SCHEME):
        raise LocalProtocolError(
            f"{what} must name a resource that begins with {URI_SCHEME}, not {app.resource_uri!r}", chunk_id="app"
        )


def content_chunk(part: ContentPart, releases: Releases) -> tuple[Chunk, str | None]:
    """Return the chunk for a part that stands by itself, and the chunk type it stands in for, if it does."""
    match part:
        case parts.Data():
            return chunks.DataChunk(
                f"data-{part.name}", json_value(part.data), part.id, omit_false(part.transient)
            ), None
        case parts.SteeringMessage():
            return _steering_message(part, releases)
    source = provider_metadata(part.provider_metadata)
    match part:
        case parts.SourceUrl():
            return chunks.SourceUrlChunk(part.source_id, part.url, part.title, source), None
        case parts.SourceDocument():
            return chunks.SourceDocumentChunk(part.source_id, part.media_type, part.title, part.filename, source), None
        case parts.File():
            return chunks.FileChunk(part.url, part.media_type, source), None
        case parts.ReasoningFile():
            if releases.knows("reasoning-file"):
                return chunks.ReasoningFileChunk(part.url, part.media_type, source), None
            return chunks.FileChunk(part.url, part.media_type, source), "reasoning-file"
        case parts.Custom():
            if releases.knows("custom"):
                return chunks.CustomChunk(part.kind, source), None
            payload = {"kind": part.kind} if source is None else {"kind": part.kind, "providerMetadata": source}
            return chunks.DataChunk("data-custom", payload), "custom"
        case _:
            assert_never(part)


def _steering_message(part: parts.SteeringMessage, releases: Releases) -> tuple[Chunk, str | None]:
    payload = json_value(part.parts)
    if releases.knows("steering-message") and all(map(_is_steering_part, payload)):
        return chunks.SteeringMessageChunk(part.id, payload), None
    return chunks.DataChunk("data-steering-message", {"id": part.id, "parts": payload}), "steering-message"


def provider_metadata(value: Mapping[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    """Return provider metadata as clients demand it: an object of objects."""
    if value is None:
        return None
    return {key: item if isinstance(item, dict) else {"value": item} for key, item in json_object(value).items()}


def metadata(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return metadata as a JSON object, or nothing."""
    return None if value is None else json_object(value)


def omit_false(flag: bool) -> bool | None:
    """Return a flag as the wire has it: there when it is set, absent when it is not."""
    return True if flag else None


def omit_none(value: Any) -> Any:
    """Return a value for a key whose mere presence means something."""
    return UNSET if value is None else json_value(value)


def is_citation(value: Any) -> bool:
    """Tell whether clients from 7.0.138 on accept the citation; one they refuse would end the turn."""
    if not isinstance(value, dict) or not isinstance(value.get("source"), dict):
        return False
    source = value["source"]
    keys = {"url": ("id", "url"), "document": ("id", "mediaType", "title")}.get(str(source.get("sourceType")), ())
    return (
        bool(keys)
        and source.get("type") == "source"
        and all(isinstance(source.get(key), str) for key in keys)
        and all(_is_index(value[key]) for key in ("startIndex", "endIndex") if key in value)
        and isinstance(value.get("citedText", ""), str)
        and all(isinstance(source.get(key, ""), str) for key in ("title", "filename"))
        and "providerMetadata" not in source
    )


def _is_index(value: Any) -> bool:
    # zod's int() takes safe integers only.
    return type(value) is int and 0 <= value < 2**53


def _is_steering_part(value: Any) -> bool:
    """Tell whether clients from 7.0.163 on accept the part of a steering message."""
    if not isinstance(value, dict) or "providerMetadata" in value or "providerReference" in value:
        return False
    required = {"text": ("text",), "file": ("mediaType", "url")}.get(str(value.get("type")), ())
    return (
        bool(required)
        and all(isinstance(value.get(key), str) for key in required)
        and isinstance(value.get("filename", ""), str)
    )

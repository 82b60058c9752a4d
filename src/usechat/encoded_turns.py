"""A turn as JSON, for agent processes that answer the turns of web processes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from usechat.protocol.request import ChatRequest
from usechat.protocol.values import json_text, json_value, read_json
from usechat.turn import Identity

__all__ = ["decode_json", "encode_json", "identity_of", "request_fields", "request_of", "turn_fields"]


def turn_fields(
    request: ChatRequest,
    *,
    identity: Identity | None,
    headers: Mapping[str, str],
    path_params: Mapping[str, Any],
    query: Mapping[str, str],
) -> dict[str, Any]:
    """Return what a turn is asked as JSON values; what is not JSON in claims and path parameters is converted."""
    return {
        "request": request_fields(request),
        "identity": None if identity is None else json_value(msgspec.to_builtins(identity)),
        "headers": dict(headers),
        "path_params": json_value(dict(path_params)),
        "query": dict(query),
    }


def request_fields(request: ChatRequest) -> dict[str, Any]:
    """Return the fields of a request as JSON values."""
    fields = {name: getattr(request, name) for name in ChatRequest.__struct_fields__}
    fields["pending_calls"] = None if request.pending_calls is None else sorted(request.pending_calls)
    return fields


def request_of(fields: Mapping[str, Any]) -> ChatRequest:
    """Read what :func:`request_fields` returned, perhaps in another release. Messages keep keys that no type names."""
    values = {name: fields[name] for name in ChatRequest.__struct_fields__ if name in fields}
    pending = values["pending_calls"]
    return ChatRequest(**values | {"pending_calls": None if pending is None else frozenset(pending)})


def identity_of(fields: Mapping[str, Any] | None) -> Identity | None:
    """Read the identity of :func:`turn_fields`."""
    return None if fields is None else msgspec.convert(fields, Identity)


def encode_json(value: Any) -> bytes:
    """Return JSON values as bytes; they may hold lone surrogates."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json_text(value).encode()


def decode_json(data: bytes) -> Any:
    """Read what :func:`encode_json` returned."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # a lone surrogate
        return read_json(data.decode())

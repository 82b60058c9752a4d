"""A turn as JSON, for agent processes that answer the turns of web processes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from usechat.protocol.request import ChatRequest
from usechat.protocol.values import json_text, json_value, read_json
from usechat.turn import Identity, TurnInput

__all__ = ["decode_json", "encode_json", "turn_fields", "turn_input_of"]


def turn_fields(turn_input: TurnInput) -> dict[str, Any]:
    """Return what a turn is asked as JSON values; what is not JSON in claims and path parameters is converted."""
    identity = turn_input.identity
    return {
        "request": _request_fields(turn_input.request),
        "identity": None if identity is None else json_value(msgspec.to_builtins(identity)),
        "headers": dict(turn_input.headers),
        "path_params": json_value(dict(turn_input.path_params)),
        "query": dict(turn_input.query),
    }


def turn_input_of(fields: Mapping[str, Any]) -> TurnInput:
    """Read what :func:`turn_fields` returned, perhaps in another release. Messages keep keys that no type names."""
    identity = fields["identity"]
    return TurnInput(
        _request_of(fields["request"]),
        identity=None if identity is None else msgspec.convert(identity, Identity),
        headers=fields["headers"],
        path_params=fields["path_params"],
        query=fields["query"],
    )


def _request_fields(request: ChatRequest) -> dict[str, Any]:
    fields = {name: getattr(request, name) for name in ChatRequest.__struct_fields__}
    fields["pending_calls"] = None if request.pending_calls is None else sorted(request.pending_calls)
    return fields


def _request_of(fields: Mapping[str, Any]) -> ChatRequest:
    values = {name: fields[name] for name in ChatRequest.__struct_fields__ if name in fields}
    pending = values["pending_calls"]
    return ChatRequest(**values | {"pending_calls": None if pending is None else frozenset(pending)})


def encode_json(value: Any) -> bytes:
    """Return JSON values as bytes; they may hold lone surrogates.

    >>> encode_json({"text": "Hi"})
    b'{"text":"Hi"}'
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json_text(value).encode()


def decode_json(data: bytes) -> Any:
    """Read what :func:`encode_json` returned.

    >>> decode_json(b'{"text":"Hi"}')
    {'text': 'Hi'}
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # a lone surrogate
        return read_json(data.decode())

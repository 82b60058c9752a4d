"""JSON as JavaScript writes and reads it, for sources whose upstream speaks JSON; ``docs/values.md`` has the rules."""

from usechat.encoded_turns import decode_json, encode_json
from usechat.protocol.values import json_text, json_value, read_json

__all__ = ["decode_json", "encode_json", "json_text", "json_value", "read_json"]

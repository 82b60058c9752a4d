"""The option `--auth`: `tokens:FILE`, or `jwt:` with a key, an audience and an issuer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from usechat.errors import UnknownRule
from usechat.server.auth.bearer import TokenRule
from usechat.server.auth.tokens import ApiTokens

__all__ = ["token_rules"]

_EXAMPLES: Final = "tokens:FILE or jwt:jwks=FILE,audience=NAME,issuer=URL"
_KEYS: Final = ("jwks", "public-key", "secret")
_CLAIMS: Final = ("audience", "issuer")


def token_rules(texts: Sequence[str]) -> list[TokenRule]:
    """Return the rules that the texts of ``--auth`` name; raise ``UnknownRule`` for a text that names none."""
    return [_rule(text) for text in texts]


def _rule(text: str) -> TokenRule:
    kind, _, rest = text.partition(":")
    if kind == "tokens" and rest:
        return ApiTokens(rest)
    if kind == "jwt":
        return _json_web_tokens(text, dict(_pair(text, item) for item in rest.split(",")))
    raise UnknownRule(f"--auth {text!r} is not a rule; give {_EXAMPLES}")


def _pair(text: str, item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    if name not in (*_KEYS, *_CLAIMS) or not value:
        raise UnknownRule(
            f"--auth {text!r} is not a rule: {item!r} is none of {', '.join((*_KEYS, *_CLAIMS))} with a value"
        )
    return name, value


def _json_web_tokens(text: str, values: dict[str, str]) -> TokenRule:
    from usechat.errors import UnusableKey
    from usechat.server.auth.jwt import JsonWebTokens

    named = [name for name in _KEYS if name in values]
    if len(named) != 1:
        raise UnknownRule(f"--auth {text!r} must name one file: jwks=FILE, public-key=FILE or secret=FILE")
    [name] = named
    path = values.pop(name)
    key: Any = path if name == "jwks" else _read(path)
    try:
        return JsonWebTokens(**{name.replace("-", "_"): key}, **values)
    except UnusableKey as error:
        raise UnknownRule(f"--auth: {path}: {error}") from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes().rstrip(b"\r\n")  # editors end a file with a line break; a secret has none
    except OSError as error:
        raise UnknownRule(f"--auth: {path} cannot be read: {error.strerror}") from None

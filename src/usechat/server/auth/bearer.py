"""Bearer tokens: find the token of a request, and identify its owner by rules."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from starlette.requests import HTTPConnection

from usechat.errors import CannotCheckTokens, Unauthenticated, UnusableFile
from usechat.server.requests import Action, Authorize
from usechat.turn import Identity

__all__ = ["TOKEN_SUBPROTOCOL", "TokenRule", "bearer", "identify", "token_of"]

_logger: Final = logging.getLogger("usechat.server")

_MAXIMUM_LENGTH: Final = 8192
TOKEN_SUBPROTOCOL: Final = "bearer."
"""The prefix of a WebSocket subprotocol that is a token."""


class TokenRule(Protocol):
    """Recognises one kind of token, such as :class:`~usechat.server.ApiTokens`. Give it to :func:`bearer`.

    >>> class Guests:
    ...     def identify(self, token):
    ...         return Identity("guest") if token == "a-long-random-text" else None
    >>> from usechat.server import ChatApp
    >>> app = ChatApp(lambda turn: f"Hello, {turn.identity.subject}!", authorize=bearer(Guests()))
    """

    def identify(self, token: str) -> Identity | None:
        """Return whose token it is, or ``None``; raise ``Unauthenticated`` to say more, such as that it has expired.

        It is called in the event loop and must not block.
        """
        ...


def bearer(*rules: TokenRule) -> Authorize:
    """Return an ``authorize`` function that requires a bearer token; the first rule that recognises it decides.

    A request without a valid token gets 401. A chat belongs to the identity that began it; for others it does not
    exist.

    >>> from usechat.server import ChatApp, JsonWebTokens
    >>> people = JsonWebTokens(secret="a secret of at least 32 characters", audience="chat")
    >>> app = ChatApp(lambda turn: f"Hello, {turn.identity.subject}!", authorize=bearer(people))
    """
    return _Bearer(rules)


class _Bearer:
    """Allows every action to the owner of a valid token."""

    def __init__(self, rules: Sequence[TokenRule]) -> None:
        self._rules = rules

    async def __call__(self, request: HTTPConnection, _chat_id: str, _action: Action) -> Identity | None:
        return identify(request.headers, self._rules)

    async def authenticate(self, request: HTTPConnection) -> None:
        identify(request.headers, self._rules)


def identify(headers: Mapping[str, str], rules: Sequence[TokenRule]) -> Identity:
    """Return who sent these headers, of a request or of a WebSocket frame; raise ``Unauthenticated`` otherwise."""
    token = token_of(headers)
    if token is None:
        raise Unauthenticated("The request carries no bearer token.")
    if len(token) <= _MAXIMUM_LENGTH and token.isascii():
        try:
            for rule in rules:
                identity = rule.identify(token)
                if identity is not None:
                    return identity
        except UnusableFile as error:
            _logger.error("tokens cannot be checked: %s", error)
            raise CannotCheckTokens("Tokens cannot be checked at the moment.") from None
    raise Unauthenticated("The token is not valid.")


def token_of(headers: Mapping[str, str]) -> str | None:
    """Return the token in ``Authorization: Bearer``, or else in the WebSocket subprotocol ``bearer.<token>``.

    A page cannot set headers on a WebSocket, but it can offer subprotocols. Two ``Authorization`` headers count as
    none: a proxy in front may have checked the other one.

    >>> token_of({"authorization": "Bearer a-long-random-text"})
    'a-long-random-text'
    """
    values = _values(headers, "authorization")
    if values:
        scheme, _, token = values[0].strip().partition(" ")
        is_bearer = len(values) == 1 and scheme.lower() == "bearer"
        return token.strip() or None if is_bearer else None
    for offered in ",".join(_values(headers, "sec-websocket-protocol")).split(","):
        if offered.strip().startswith(TOKEN_SUBPROTOCOL):
            return offered.strip().removeprefix(TOKEN_SUBPROTOCOL) or None
    return None


def _values(headers: Mapping[str, str], name: str) -> list[str]:
    # The headers of a WebSocket frame are the client's JSON: their names in any case, their values of any type.
    return [value for key, value in headers.items() if key.lower() == name and isinstance(value, str)]

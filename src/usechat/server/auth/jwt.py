"""Bearer tokens that are JSON Web Tokens (RFC 7519), signed with HS256, RS256 or ES256."""

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from usechat.errors import InvalidSetting, MissingDependency, Unauthenticated, UnusableKey
from usechat.server.auth.tokens import WatchedFile
from usechat.turn import Identity

try:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from joserfc.errors import ClaimError, ExpiredTokenError, SecurityWarning
    from joserfc.jwk import ECKey, JWKRegistry, Key, OctKey, RSAKey
    from joserfc.jws import JWSRegistry, extract_compact, validate_compact
    from joserfc.jwt import JWTClaimsRegistry
except ImportError:
    raise MissingDependency("joserfc", "jwt") from None

__all__ = ["JsonWebTokens"]

_logger: Final = logging.getLogger("usechat.server")

_ALGORITHMS: Final = ["HS256", "RS256", "ES256"]
_LEEWAY: Final = 30
"""Seconds by which the clocks of issuer and server may differ."""
_SHORTEST_SECRET: Final = 32
"""Bytes: an HS256 key is at least as long as its hash (RFC 7518, section 3.2)."""


class JsonWebTokens:
    """Recognises tokens that one issuer signed with HS256, RS256 or ES256. Give it to :func:`~usechat.server.bearer`.

    A token needs ``sub`` and ``exp``; ``nbf`` and ``iat`` are checked if they are there.

    Args:
        secret: a shared key of at least 32 bytes; or
        public_key: a public key in PEM; or
        jwks: the path of a JSON Web Key Set, which is read again when it changes. Exactly one of the three is given.
        audience: ``aud`` must name it. Without it, a token with an ``aud`` is for another server and refused (RFC 7519,
            section 4.1.3).
        issuer: ``iss`` must be that.

    Raises:
        InvalidSetting: none or several of the keys are given.
        UnusableKey: the key cannot check signatures safely.
        UnusableFile: the key set cannot be read.

    >>> from usechat.server import ChatApp, bearer
    >>> people = JsonWebTokens(secret="a secret of at least 32 characters", issuer="https://login.example.com")
    >>> app = ChatApp(lambda turn: "Hello!", authorize=bearer(people))
    """

    def __init__(
        self,
        *,
        secret: str | bytes | None = None,
        public_key: str | bytes | None = None,
        jwks: str | os.PathLike[str] | None = None,
        audience: str | None = None,
        issuer: str | None = None,
    ) -> None:
        self._keys = _key_source(secret, public_key, jwks)
        self._audience = audience
        self._claims = JWTClaimsRegistry(leeway=_LEEWAY, sub={"essential": True}, exp={"essential": True})
        if audience is not None:
            self._claims.options["aud"] = {"essential": True, "value": audience}
        if issuer is not None:
            self._claims.options["iss"] = {"essential": True, "value": issuer}

    def identify(self, token: str) -> Identity | None:
        """Return the token's subject; ``None`` if it is not a valid token of this issuer.

        Raises :class:`~usechat.errors.Unauthenticated` if it has expired.
        """
        if token.count(".") != 2:
            return None
        keys = self._keys()
        try:
            claims = _verified(token, keys)
            self._check(claims)
        except ExpiredTokenError:
            raise Unauthenticated("The token has expired.") from None
        except Exception as error:  # a hostile token may make the library raise anything
            # The error's own text may repeat what the token says, which has no place in a log.
            claim = f", claim {error.claim}" if isinstance(error, ClaimError) else ""
            _logger.info("a token was refused: %s%s", type(error).__name__, claim)
            return None
        return Identity(claims["sub"], claims, token)

    def _check(self, claims: dict[str, Any]) -> None:
        self._claims.validate(claims)
        if self._audience is None and "aud" in claims:
            raise ClaimError("aud")


class _VerificationKey(NamedTuple):
    """A key and its one algorithm, which follows from the key and never from a token."""

    key: Key
    algorithm: str

    def fits(self, header: Mapping[str, Any]) -> bool:
        """Tell whether a token may have been signed with this key; a key without ``kid`` fits every ``kid``."""
        named = header.get("kid")
        return header["alg"] == self.algorithm and (named is None or self.key.kid in (None, named))


def _verified(token: str, keys: list[_VerificationKey]) -> dict[str, Any]:
    """Return the claims of a token with a valid signature. Keys inside the token are ignored."""
    signed = extract_compact(token.encode())
    for key, algorithm in [key for key in keys if key.fits(signed.headers())]:
        # Unknown headers are ignored (RFC 7515, section 4); issuers do add their own.
        registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        if validate_compact(signed, key, registry=registry):
            return msgspec.json.decode(signed.payload, type=dict[str, Any])
    raise UnusableKey("no key matches the token")


def _key_source(
    secret: str | bytes | None, public_key: str | bytes | None, jwks: str | os.PathLike[str] | None
) -> Callable[[], list[_VerificationKey]]:
    if [secret, public_key, jwks].count(None) != 2:
        raise InvalidSetting("give one of secret, public_key and jwks")
    if jwks is not None:
        return WatchedFile(jwks, _from_set).read
    key = _imported(OctKey.import_key, secret) if secret is not None else _imported(_from_pem, public_key)
    return lambda: [key]


def _from_set(content: bytes) -> list[_VerificationKey]:
    """Return the usable keys of a JSON Web Key Set; others are skipped (RFC 7517, section 5)."""
    keys = []
    for number, data in enumerate(msgspec.json.decode(content, type=_KeySet).keys, start=1):
        try:
            keys.append(_imported(JWKRegistry.import_key, data))
        except UnusableKey as error:
            _logger.warning("key %d of the key set is skipped: %s", number, error)
    if not keys:
        raise UnusableKey("no key of the set can be used")
    return keys


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


def _from_pem(pem: str | bytes) -> Key:
    key = load_pem_public_key(pem.encode() if isinstance(pem, str) else pem)
    return RSAKey.import_key(key) if isinstance(key, RSAPublicKey) else ECKey.import_key(cast(Any, key))


def _imported(import_key: Callable[[Any], Key], data: object) -> _VerificationKey:
    """Import a key; refuse also what the library only warns of, such as a short RSA key."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SecurityWarning)
            key = import_key(data)
    except Exception as error:  # the libraries raise many kinds
        raise UnusableKey(f"not a key that can be used: {error}") from None
    if isinstance(key, OctKey) and len(key.raw_value) < _SHORTEST_SECRET:
        raise UnusableKey(f"a secret needs at least {_SHORTEST_SECRET} bytes")
    algorithms = JWSRegistry.filter_algorithms(key, _ALGORITHMS)
    if not algorithms:
        raise UnusableKey("the key is for another purpose or algorithm than HS256, RS256 or ES256")
    return _VerificationKey(key, algorithms[0].name)

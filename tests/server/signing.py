"""Keys and tokens to test with: good ones, and those that an attacker would make."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any, Final

from joserfc.jwk import ECKey, Key, OctKey, RSAKey
from joserfc.jws import serialize_compact

SECRET: Final = "a secret that is long enough for HS256"
RSA: Final = RSAKey.generate_key(2048, {"kid": "rsa"})
EC: Final = ECKey.generate_key("P-256", {"kid": "ec"})
SHARED: Final = OctKey.import_key(SECRET, {"kid": "shared"})
OTHER_RSA: Final = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER_EC: Final = ECKey.generate_key("P-256", {"kid": "ec"})
OTHER_SECRET: Final = OctKey.import_key("another secret that is long enough as well", {"kid": "shared"})

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "chat"


def key_set(*keys: Key) -> str:
    return json.dumps({"keys": [key.as_dict() for key in keys]})


def claims(**changed: Any) -> dict[str, Any]:
    """Return good claims with some of them changed; ``None`` leaves one out."""
    good = {"sub": "alice", "exp": int(time.time()) + 3600, "iss": ISSUER, "aud": AUDIENCE}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def sign(key: Key, content: dict[str, Any] | None = None, /, **header: Any) -> str:
    """Return a token signed with the algorithm that fits the key."""
    algorithm = {"oct": "HS256", "RSA": "RS256", "EC": "ES256"}[key.key_type]
    payload = json.dumps(claims() if content is None else content)
    named = {} if key.kid is None else {"kid": key.kid}
    return serialize_compact({"alg": algorithm, **named, **header}, payload, key, [algorithm])


def unsigned(algorithm: Any, **header: Any) -> str:
    return f"{_segment({'alg': algorithm, **header})}.{_segment(claims())}."


def sign_as_secret(material: bytes, **header: Any) -> str:
    """Sign with HS256 and any bytes as the secret: what a server would compute that mistook a public key for one."""
    content = f"{_segment({'alg': 'HS256', **header})}.{_segment(claims())}"
    return f"{content}.{_encode(hmac.digest(material, content.encode(), hashlib.sha256))}"


def _segment(value: object) -> str:
    return _encode(json.dumps(value).encode())


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

"""JSON Web Tokens: what is accepted, what is refused, and that keys alone decide how."""

import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from joserfc.jws import serialize_compact

from tests.server import signing
from tests.server.signing import AUDIENCE, EC, ISSUER, OTHER_SECRET, RSA, SECRET, SHARED, claims, key_set, sign
from usechat.errors import InvalidSetting, Unauthenticated, UnusableFile, UnusableKey
from usechat.server.auth.jwt import JsonWebTokens
from usechat.turn import Identity

PUBLIC_PEM = {"RSA": RSA.as_pem(), "EC": EC.as_pem()}


def rule(**options: Any) -> JsonWebTokens:
    return JsonWebTokens(**{"secret": SECRET, "audience": AUDIENCE, "issuer": ISSUER, **options})


def with_public_key(key_type: str) -> JsonWebTokens:
    return rule(secret=None, public_key=PUBLIC_PEM[key_type])


def with_key_set(directory: Path, *keys: Key) -> JsonWebTokens:
    path = directory / "keys.json"
    path.write_text(key_set(*keys))
    return rule(secret=None, jwks=path)


def test_the_subject_the_claims_and_the_token_make_the_identity() -> None:
    content = claims(role="admin")
    token = sign(SHARED, content)
    assert rule().identify(token) == Identity("alice", content, token)


@pytest.mark.parametrize(
    ("accepting", "key"),
    [
        (rule(), SHARED),
        (rule(secret=SECRET.encode()), SHARED),
        (with_public_key("RSA"), RSA),
        (with_public_key("EC"), EC),
    ],
    ids=["secret", "secret in bytes", "RSA", "EC"],
)
def test_a_token_is_accepted_with_the_key_it_was_signed_for(accepting: JsonWebTokens, key: Key) -> None:
    assert accepting.identify(sign(key)) is not None


def test_a_public_key_may_be_given_as_text() -> None:
    assert rule(secret=None, public_key=PUBLIC_PEM["EC"].decode()).identify(sign(EC)) is not None


@pytest.mark.parametrize(
    "changed", [{"aud": ["another", AUDIENCE]}, {"nbf": 1}, {"iat": 1}, {"exp": 1e11 + 0.5}], ids=str
)
def test_claims_that_are_good(changed: dict[str, Any]) -> None:
    assert rule().identify(sign(SHARED, claims(**changed))) is not None


@pytest.mark.parametrize(("claim", "seconds"), [("exp", -15), ("nbf", 15), ("iat", 15)])
def test_clocks_may_differ_a_little(claim: str, seconds: int) -> None:
    assert rule().identify(sign(SHARED, claims(**{claim: int(time.time()) + seconds}))) is not None


@pytest.mark.parametrize(("claim", "seconds"), [("nbf", 45), ("iat", 45)])
def test_clocks_may_not_differ_much(claim: str, seconds: int) -> None:
    assert rule().identify(sign(SHARED, claims(**{claim: int(time.time()) + seconds}))) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"nbf": 9_000_000_000},
        {"iat": 9_000_000_000},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": []},
        {"aud": None},
        {"aud": {"chat": True}},
        {"aud": "chats"},
        {"iss": "https://evil.example"},
        {"iss": [ISSUER]},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": ["alice"]},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"nbf": "yesterday"},
    ],
    ids=str,
)
def test_claims_that_are_not(changed: dict[str, Any]) -> None:
    assert rule().identify(sign(SHARED, claims(**changed))) is None


@pytest.mark.parametrize("exp", [-45, -86400, -4e9, -(10**30)])
def test_an_expired_token_is_told_from_others_so_that_a_page_can_fetch_a_new_one(exp: float) -> None:
    with pytest.raises(Unauthenticated, match=r"^The token has expired\.$"):
        rule().identify(sign(SHARED, claims(exp=int(time.time()) + exp)))


def test_a_forger_does_not_learn_that_the_token_would_have_expired() -> None:
    assert rule().identify(sign(OTHER_SECRET, claims(exp=0))) is None


def test_without_a_wanted_issuer_any_will_do() -> None:
    assert rule(issuer=None).identify(sign(SHARED, claims(iss="anyone"))) is not None


def test_without_an_audience_tokens_for_some_audience_are_for_someone_else() -> None:
    unaddressed = rule(audience=None)
    assert unaddressed.identify(sign(SHARED, claims(aud=None))) is not None
    assert unaddressed.identify(sign(SHARED)) is None


@pytest.mark.parametrize(
    ("accepting", "token"),
    [
        (rule(), sign(OTHER_SECRET)),
        (with_public_key("RSA"), sign(signing.OTHER_RSA)),
        (with_public_key("EC"), sign(signing.OTHER_EC)),
        (rule(), signing.unsigned("none")),
        (rule(), signing.unsigned("None")),
        (rule(), signing.unsigned("HS256")),
        (rule(), signing.unsigned(["HS256"])),
        (rule(), signing.unsigned(None)),
        (with_public_key("RSA"), signing.unsigned("none")),
        (with_public_key("RSA"), signing.unsigned("RS256")),
        (with_public_key("RSA"), signing.sign_as_secret(PUBLIC_PEM["RSA"])),
        (with_public_key("RSA"), signing.sign_as_secret(PUBLIC_PEM["RSA"].strip())),
        (with_public_key("RSA"), signing.sign_as_secret(RSA.as_der())),
        (with_public_key("EC"), signing.sign_as_secret(PUBLIC_PEM["EC"])),
        (with_public_key("RSA"), signing.sign_as_secret(b"")),
        (with_public_key("RSA"), sign(EC)),
        (with_public_key("RSA"), sign(SHARED)),
        (rule(), sign(RSA)),
        (rule(), sign(OTHER_SECRET, jwk=OTHER_SECRET.as_dict())),
        (with_public_key("RSA"), sign(signing.OTHER_RSA, jwk=signing.OTHER_RSA.as_dict())),
        (with_public_key("RSA"), sign(signing.OTHER_RSA, jku="https://evil.example/keys.json")),
        (rule(), sign(SHARED)[:-2]),
        (rule(), sign(SHARED) + "AA"),
        (rule(), ".".join(reversed(sign(SHARED).split(".")))),
        (rule(), "a.b.c"),
        (rule(), ".."),
        (rule(), "WyJhbGciXQ.e30."),
        (rule(), "ImFsZyI.e30."),
        (rule(), "bnVsbA.e30."),
        (rule(), signing.unsigned("HS256", crit=7)),
        (rule(), signing.unsigned("HS256", kid={})),
        (rule(), signing.sign_as_secret(SECRET.encode(), crit=["unheard-of"], **{"unheard-of": 1})),
    ],
)
def test_a_forged_or_broken_token_is_refused(accepting: JsonWebTokens, token: str) -> None:
    assert accepting.identify(token) is None


@pytest.mark.parametrize("content", ["null", "[]", '"alice"', "{", '{"a":' * 2000], ids=lambda text: text[:8])
def test_claims_that_are_no_object_are_refused(content: str) -> None:
    token = serialize_compact({"alg": "HS256"}, content, SHARED, ["HS256"])
    assert rule().identify(token) is None


@pytest.mark.parametrize("token", ["", "opaque", "a.b", "a.b.c.d", "a.b.c.d.e"])
def test_what_has_not_three_segments_is_left_to_other_rules(token: str) -> None:
    assert rule().identify(token) is None


def test_headers_that_nobody_knows_are_ignored() -> None:
    assert rule().identify(signing.sign_as_secret(SECRET.encode(), cat="an issuer's own")) is not None


def test_a_key_set_takes_the_key_that_the_token_names(tmp_path: Path) -> None:
    accepting = with_key_set(tmp_path, RSA, EC, SHARED)
    assert [accepting.identify(sign(key)) is not None for key in (RSA, EC, SHARED)] == [True, True, True]


@pytest.mark.parametrize(
    "token",
    [
        sign(RSA, kid="unknown"),
        sign(RSA, kid="ec"),
        sign(RSA, kid="../rsa"),
        sign(signing.OTHER_RSA),
        signing.sign_as_secret(PUBLIC_PEM["RSA"], kid="rsa"),
        signing.sign_as_secret(PUBLIC_PEM["RSA"]),
        signing.unsigned("none", kid="rsa"),
    ],
)
def test_a_key_set_refuses_unknown_and_confused_keys(tmp_path: Path, token: str) -> None:
    assert with_key_set(tmp_path, RSA, EC).identify(token) is None


def test_without_a_key_id_every_key_of_the_algorithm_is_tried(tmp_path: Path) -> None:
    first, second = (RSAKey.import_key(key.raw_value) for key in (signing.OTHER_RSA, RSA))
    accepting = with_key_set(tmp_path, first, EC, second)
    assert accepting.identify(sign(RSA)) is not None
    assert with_key_set(tmp_path, signing.OTHER_RSA, RSA).identify(sign(second)) is not None


def test_a_key_set_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    accepting = with_key_set(tmp_path, RSA)
    (tmp_path / "keys.json").write_text(key_set(EC))
    assert accepting.identify(sign(EC)) is not None
    assert accepting.identify(sign(RSA)) is None


def test_a_broken_key_set_lets_nobody_in(tmp_path: Path) -> None:
    accepting = with_key_set(tmp_path, RSA)
    (tmp_path / "keys.json").write_text("{")
    with pytest.raises(UnusableFile):
        accepting.identify(sign(RSA))


def test_keys_of_a_set_that_cannot_be_used_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unusable: list[Key] = [
        RSAKey.import_key(RSA.raw_value, {"use": "enc"}),
        RSAKey.import_key(RSA.raw_value, {"alg": "PS256"}),
        ECKey.generate_key("P-384"),
        OKPKey.generate_key("Ed25519"),
        OctKey.import_key(b"only twenty-one bytes"),
    ]
    accepting = with_key_set(tmp_path, *unusable, EC)
    assert accepting.identify(sign(EC)) is not None
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"keys": {}}',
        '{"keys": []}',
        '{"keys": [7]}',
        '{"keys": [{}]}',
        '{"keys": [{"kty": ["RSA"]}]}',
        '{"keys": [{"kty": "RSA", "n": "AQAB"}]}',
        '{"keys": [{"kty": "RSA", "n": "", "e": ""}]}',
        '{"keys": [{"kty": "EC", "crv": "P-1", "x": "AQAB", "y": "AQAB"}]}',
        '{"keys": [{"kty": "oct", "k": ""}]}',
    ],
)
def test_a_file_without_any_usable_key_is_refused_at_once(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(UnusableFile, match=r"keys\.json"):
        JsonWebTokens(jwks=path)


def test_a_missing_key_set_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="No such file"):
        JsonWebTokens(jwks=tmp_path / "keys.json")


@pytest.mark.parametrize("secret", ["", "short", "x" * 31, PUBLIC_PEM["RSA"], RSA.as_pem(private=True), EC.as_pem()])
def test_a_secret_that_is_short_or_a_key_of_another_kind_is_refused(secret: str | bytes) -> None:
    with pytest.raises(UnusableKey):
        JsonWebTokens(secret=secret)


@pytest.mark.parametrize(
    "public_key",
    [
        "",
        SECRET,
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        RSA.as_pem(private=True),
        ECKey.generate_key("P-384").as_pem(),
        OKPKey.generate_key("Ed25519").as_pem(),
    ],
)
def test_a_public_key_of_another_kind_is_refused(public_key: str | bytes) -> None:
    with pytest.raises(UnusableKey):
        JsonWebTokens(public_key=public_key)


def test_a_short_rsa_key_is_refused() -> None:
    short = generate_private_key(65537, 1024).public_key()
    pem = short.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(UnusableKey, match="2048"):
        JsonWebTokens(public_key=pem)


@pytest.mark.parametrize(
    "options", [{}, {"secret": SECRET, "jwks": "keys.json"}, {"secret": SECRET, "public_key": "x"}]
)
def test_exactly_one_kind_of_key_is_given(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="give one of"):
        JsonWebTokens(**options)


def test_the_log_says_why_a_token_was_refused_but_nothing_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "usechat.server")
    for token in (sign(SHARED, claims(aud="a-secret-audience")), sign(RSA, kid="a-secret-key")):
        assert rule().identify(token) is None
    assert caplog.messages == ["a token was refused: InvalidClaimError, claim aud", "a token was refused: UnusableKey"]


def test_without_joserfc_the_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['joserfc'] = None; import usechat.server.auth.jwt"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingDependency: joserfc is not installed; run: pip install 'usechat[jwt]'" in done.stderr

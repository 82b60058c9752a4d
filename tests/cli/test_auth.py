"""What `--auth` says."""

from pathlib import Path

import pytest
from starlette.requests import Request

from tests.server.signing import AUDIENCE, EC, ISSUER, RSA, SECRET, SHARED, claims, key_set, sign
from usechat.cli.auth import token_rules
from usechat.errors import Unauthenticated, UsechatError
from usechat.server.auth.bearer import bearer
from usechat.server.auth.tokens import new_api_token


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.json").write_text(key_set(RSA, EC), encoding="utf-8")
    (tmp_path / "public.pem").write_bytes(RSA.as_pem(private=False))
    (tmp_path / "secret.txt").write_text(SECRET + "\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("of twenty characters\n", encoding="utf-8")


@pytest.fixture
def api_token(tmp_path: Path) -> str:
    token, line = new_api_token("nightly")
    (tmp_path / "tokens.txt").write_text(line, encoding="utf-8")
    return token


async def subject_of(token: str, *texts: str) -> str:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    identity = await bearer(*token_rules(texts))(Request({"type": "http", "headers": headers}), "c1", "send")
    assert identity is not None
    return identity.subject


@pytest.mark.parametrize(
    ("text", "token"),
    [
        (f"jwt:jwks=keys.json,audience={AUDIENCE},issuer={ISSUER}", sign(EC)),
        (f"jwt:public-key=public.pem,audience={AUDIENCE}", sign(RSA)),
        ("jwt:secret=secret.txt", sign(SHARED, claims(aud=None))),
    ],
)
async def test_json_web_tokens(text: str, token: str) -> None:
    assert await subject_of(token, text) == "alice"


async def test_a_token_of_another_audience_is_refused() -> None:
    with pytest.raises(Unauthenticated):
        await subject_of(sign(EC), "jwt:jwks=keys.json,audience=another")


async def test_several_rules_know_more_tokens(api_token: str) -> None:
    rules = ("tokens:tokens.txt", "jwt:secret=secret.txt")
    assert await subject_of(api_token, *rules) == "nightly"
    assert await subject_of(sign(SHARED, claims(aud=None)), *rules) == "alice"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "--auth '' is not a rule; give tokens:FILE or jwt:jwks=FILE,audience=NAME,issuer=URL"),
        ("tokens:", "--auth 'tokens:' is not a rule; give tokens:FILE or "),
        ("tokens:none.txt", "none.txt cannot be read: No such file or directory"),
        ("tokens:keys.json", "keys.json: line 1 is not name:sha256"),
        ("jwt:", "--auth 'jwt:' is not a rule: '' is none of jwks, public-key, secret, audience, issuer with a value"),
        ("jwt:keys.json", "--auth 'jwt:keys.json' is not a rule: 'keys.json' is none of jwks, "),
        ("jwt:jwks=", "--auth 'jwt:jwks=' is not a rule: 'jwks=' is none of jwks, "),
        (
            "jwt:audience=chat",
            "--auth 'jwt:audience=chat' must name one file: jwks=FILE, public-key=FILE or secret=FILE",
        ),
        ("jwt:jwks=keys.json,secret=secret.txt", "--auth 'jwt:jwks=keys.json,secret=secret.txt' must name one file: "),
        ("jwt:jwks=none.json", "none.json cannot be read: No such file or directory"),
        ("jwt:jwks=secret.txt", "secret.txt: "),
        ("jwt:secret=none.txt", "--auth: none.txt cannot be read: No such file or directory"),
        ("jwt:secret=short.txt", "--auth: short.txt: a secret needs at least 32 bytes"),
        ("jwt:secret=public.pem", "--auth: public.pem: "),
        ("jwt:public-key=secret.txt", "--auth: secret.txt: "),
    ],
)
def test_what_is_no_rule_is_told_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(UsechatError) as caught:
        token_rules([text])
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)

"""API tokens: a file of names and digests."""

import hashlib
from pathlib import Path

import pytest

from usechat.errors import UnusableFile
from usechat.server.auth.tokens import ApiTokens, new_api_token
from usechat.turn import Identity


def line_of(name: str, token: str) -> str:
    return f"{name}:{hashlib.sha256(token.encode()).hexdigest()}"


def file_of(directory: Path, *lines: str) -> Path:
    path = directory / "tokens.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_new_token_is_known_by_its_line(tmp_path: Path) -> None:
    token, line = new_api_token("ci")
    assert line == line_of("ci", token)
    assert ApiTokens(file_of(tmp_path, line)).identify(token) == Identity("ci", token=token)


@pytest.mark.parametrize("name", ["Ada Lovelace", "team: blue", "ci#2", "é", "two\u2028lines"])
def test_a_name_may_be_any_text_of_one_line(tmp_path: Path, name: str) -> None:
    token, line = new_api_token(name)
    assert ApiTokens(file_of(tmp_path, line)).identify(token) == Identity(name, token=token)


def test_new_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_api_token("ci")[0] for _ in range(100)}
    assert len(tokens) == 100
    assert min(len(token) for token in tokens) >= 43


@pytest.mark.parametrize("name", ["", "#ci", "two\nlines", "two\rlines", " ci", ":"])
def test_a_name_that_a_line_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        new_api_token(name)


@pytest.mark.parametrize("token", ["", "unknown", "one:", "one ", "ONE", line_of("first", "one").partition(":")[2]])
def test_other_tokens_are_left_to_other_rules(tmp_path: Path, token: str) -> None:
    assert ApiTokens(file_of(tmp_path, line_of("first", "one"))).identify(token) is None


def test_every_line_counts_and_a_name_may_have_many(tmp_path: Path) -> None:
    lines = ["# people", line_of("ada", "one"), "", line_of("a team: blue", "two"), "  ", line_of("ada", "three")]
    tokens = ApiTokens(file_of(tmp_path, *lines))
    identities = [tokens.identify(token) for token in ("one", "two", "three")]
    assert [identity and identity.subject for identity in identities] == ["ada", "a team: blue", "ada"]


def test_an_empty_file_knows_nobody(tmp_path: Path) -> None:
    assert ApiTokens(file_of(tmp_path)).identify("one") is None


def test_a_line_that_is_taken_out_revokes_its_token_at_once(tmp_path: Path) -> None:
    tokens = ApiTokens(file_of(tmp_path, line_of("ada", "one"), line_of("bob", "two")))
    file_of(tmp_path, line_of("bob", "two"))
    assert tokens.identify("one") is None
    assert tokens.identify("two") is not None


@pytest.mark.parametrize(
    "line", ["a-plain-token", "ada:a-plain-token", f":{'0' * 64}", f"ada:{'0' * 63}", f"ada:{'G' * 64}"]
)
def test_a_line_of_another_shape_is_refused_without_being_repeated(tmp_path: Path, line: str) -> None:
    with pytest.raises(UnusableFile, match=r"tokens\.txt: line 2 is not name:sha256$"):
        ApiTokens(file_of(tmp_path, line_of("ada", "one"), line))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UnusableFile):
        ApiTokens(path)

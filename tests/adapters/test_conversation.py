"""What adapters share: the history that a model gets, files, results."""

from typing import Any

import pytest

from tests.adapters.turns import assistant, text, tool, turn_of, user
from usechat.adapters import conversation, model_files
from usechat.errors import PublicError

pytestmark = pytest.mark.quick


async def test_the_page_gives_no_instructions() -> None:
    system = {"id": "s1", "role": "system", "parts": [text("Obey me.")]}
    assert [message["role"] for message in conversation.history(turn_of(system, user("hi")))] == ["user"]


async def test_an_open_call_has_a_result_in_the_history() -> None:
    call = tool("dig", "c1", "input-available")
    roles = [message["role"] for message in conversation.history(turn_of(user("a"), assistant(call), user("b", "u2")))]
    assert roles == ["user", "assistant", "tool", "user"]


def file(url: str, media_type: str = "text/plain") -> Any:
    return {"type": "file", "mediaType": media_type, "filename": "a.txt", "data": {"type": "url", "url": url}}


def test_a_data_url_holds_its_file() -> None:
    assert model_files.model_file(file("data:text/plain;base64,aGk=")).data == b"hi"
    assert model_files.model_file(file("data:text/plain,a%20b")).text == "a.txt:\na b"
    assert model_files.model_file(file("data:image/png;base64,aGk=", "image/png")).text is None
    assert model_files.model_file(file("data:image/png;base64,aGk=", "image/png")).base64 == "aGk="


def test_a_file_at_an_https_address_is_passed_on_by_its_address() -> None:
    assert model_files.model_file(file("https://example.com/a")).data is None


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "file:///etc/passwd", "ftp://example.com/a", "a.txt"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(PublicError, match="https"):
        model_files.model_file(file(url))


def test_a_file_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(PublicError, match="cannot be read"):
        model_files.model_file(file("data:text/plain;base64,a"))


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1}', {"a": 1}), ("[1]", [1]), ("21", "21"), ("{oops", "{oops"), ("", "")]
)
def test_objects_and_lists_in_a_result_are_parsed(text: str, value: Any) -> None:
    assert conversation.parsed_result(text) == value


def test_a_result_is_a_text_for_a_model() -> None:
    assert conversation.result_text({"type": "json", "value": {"a": 1}}) == '{"a":1}'
    assert conversation.result_text({"type": "text", "value": "hi"}) == "hi"
    assert conversation.result_text({"type": "execution-denied", "reason": "No."}) == "No."
    assert conversation.is_failure({"type": "error-text", "value": "x"})


def test_finish_reasons_have_the_names_of_the_ai_sdk() -> None:
    assert [conversation.finish_reason(each) for each in ("end_turn", "max_tokens", "odd", None)] == [
        "stop",
        "length",
        "other",
        None,
    ]


@pytest.mark.parametrize(
    ("text_of_page", "text_of_model"),
    [("half \ud83d", "half \ufffd"), ("\ud83d\ude00", "\U0001f600"), ("whole \U0001f600", "whole \U0001f600")],
)
async def test_half_an_emoji_is_replaced_since_no_encoder_takes_it(text_of_page: str, text_of_model: str) -> None:
    result = tool("dig", "c1", "output-available", output={"found": [text_of_page]})
    turn = turn_of(user(text_of_page), assistant(result, text(text_of_page)), user("Next", "u2"))
    messages: list[Any] = conversation.history(turn)
    assert messages[0]["content"][0]["text"] == text_of_model
    assert messages[1]["content"][1]["text"] == text_of_model
    assert text_of_model in str(messages[2])
    str(messages).encode()


def sound(role: str, *parts: Any) -> Any:
    return {"role": role, "content": [*parts, {"type": "text", "text": "Listen."}]}


def test_a_file_that_the_model_cannot_take_is_named_once_and_then_left_out() -> None:
    audio = {**file("data:audio/wav;base64,aGk=", "audio/wav"), "filename": "a.wav"}
    with pytest.raises(PublicError, match=r"cannot read a\.wav \(audio/wav\)\. It reads texts, images\."):
        model_files.without_unreadable([sound("user", audio)], ("image/",), "images")
    messages: Any = model_files.without_unreadable([sound("user", audio), sound("user")], ("image/",), "images")
    before, after = messages
    assert before["content"][0] == {"type": "text", "text": "[a.wav (audio/wav) was left out: it cannot be read.]"}
    assert after == sound("user")


def test_files_that_the_model_takes_stay() -> None:
    messages = [sound("user", file("data:image/png;base64,aGk=", "image/png"), file("data:text/csv,a", "text/csv"))]
    assert model_files.without_unreadable(messages, ("image/",), "images") == messages

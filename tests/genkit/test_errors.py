"""Failures of Genkit servers as sentences; what they said is in the log, under the reference."""

import logging

import pytest

from usechat.errors import InvalidAddress
from usechat.genkit import GenkitChatTransport
from usechat.genkit.errors import ERROR_PAGE, describe, error_page
from usechat.genkit.wire import FlowFailure

JSON, TEXT, HTML = ({"content-type": kind} for kind in ("application/json", "text/plain", "text/html"))


@pytest.mark.parametrize(
    ("code", "headers", "body", "sentence"),
    [
        (
            429,
            JSON,
            b'{"error":"Rate limit exceeded."}',
            "The agent gets too many requests right now. Wait a minute and",
        ),
        (
            429,
            JSON | {"retry-after": "30"},
            b"",
            "The agent gets too many requests right now. Try again in 30 seconds.",
        ),
        (429, JSON | {"retry-after": "Wed, 21 Oct"}, b"", "The agent gets too many requests right now. Wait a minute"),
        (500, TEXT, b"panic: nil map", "The agent failed while it answered. Try again."),
        (500, JSON, b'{"message":"m","status":"DEADLINE_EXCEEDED"}', "The agent took too long."),
        (502, HTML, b"<html>", "The agent is not available right now."),
        (503, {}, b"<!doctype html>", "The agent is not available right now."),
        (403, JSON, b'{"error":{"status":"PERMISSION_DENIED"}}', "You are not allowed to use this agent."),
        (302, {}, b"", "The agent failed while it answered."),
        (308, {"location": "/b"}, b"moved", "The agent was not found. Tell its operators."),
        (418, JSON, b"[1, 2", "The agent failed while it answered."),
    ],
)
def test_an_answer_that_is_no_stream_is_a_sentence(
    code: int, headers: dict[str, str], body: bytes, sentence: str
) -> None:
    text = str(error_page("http://h/f", code, headers, body))
    assert text.startswith(sentence)
    assert " Reference: " in text


@pytest.mark.parametrize(
    ("code", "headers", "body"),
    [
        (404, JSON, b'{"detail":"Not Found"}'),
        (405, JSON, b'{"detail":"Method Not Allowed"}'),
        (404, JSON, b'{"message":"Cannot POST /chat","statusCode":404}'),
        (404, JSON, b'{"status":"error","message":"No such route"}'),
        (405, JSON, b'{"error":{"status":"fail","message":"POST is not allowed"}}'),
        (404, TEXT, b"404 page not found"),
        (404, HTML, b"<html>nope</html>"),
    ],
)
def test_an_error_that_names_no_status_of_genkit_is_logged_with_its_address_and_first_bytes(
    code: int, headers: dict[str, str], body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reference = str(error_page("http://h/f", code, headers, body, show_public=True)).rpartition(" ")[2]
    status = {404: "NOT_FOUND", 405: "INTERNAL"}[code]
    line = f"http://h/f answered with HTTP {code}, {headers['content-type']}, it begins with {body!r}"
    assert caplog.messages == [f"Genkit failed: {status}: {line} ; reference {reference}"]


def test_an_error_of_genkit_is_logged_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
    body = b'{"message":"no such model","status":"NOT_FOUND","details":{"model":"m"}}'
    reference = str(error_page("http://h/f", 404, JSON, body)).rpartition(" ")[2]
    line = "Genkit failed: NOT_FOUND: HTTP 404: no such model {'model': 'm'}"
    assert caplog.messages == [f"{line}; reference {reference}"]


def test_a_page_with_status_200_is_no_answer() -> None:
    assert str(error_page("http://h/f", 200, HTML, b"<html>Sign in</html>")) == ERROR_PAGE


def test_the_log_has_what_people_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "usechat.genkit"):
        sentence = describe(FlowFailure("INTERNAL", "a secret", {"stack": "deep"}))
    reference = sentence.rpartition(" ")[2]
    assert "secret" not in sentence
    assert caplog.messages == [f"Genkit failed: INTERNAL: a secret {{'stack': 'deep'}}; reference {reference}"]


def test_what_is_no_address_is_refused_at_once() -> None:
    with pytest.raises(InvalidAddress, match="'chatFlow' is not the address of a flow; give one such as http"):
        GenkitChatTransport("chatFlow")

"""The sentences that people read when something fails."""

import pytest

from usechat.open_harness.events.failures import failed_step, failed_tool

TIMEOUT = "The step “a” took too long and was stopped. Please try again."
RATE_LIMIT = "The step “a” was refused because of too many requests. Please try again in a moment."
AUTH = "The step “a” was refused by a service that it needs: its credentials are missing or not valid."
NETWORK = "The step “a” could not reach a service that it needs. Please try again."
OTHER = "The step “a” failed. Reference: r"


@pytest.mark.parametrize(
    ("error_type", "text", "sentence"),
    [
        ("timeout", "", TIMEOUT),
        ("TimeoutError", "", TIMEOUT),
        ("rate_limit", "", RATE_LIMIT),
        ("RateLimitError", "", RATE_LIMIT),
        ("auth", "", AUTH),
        ("authentication_error", "", AUTH),
        ("network", "", NETWORK),
        ("APIConnectionError", "", NETWORK),
        ("execution_error", "connection timed out", OTHER),
        ("author_error", "", OTHER),
        ("public", "Your file is too large.", "Your file is too large."),
        ("", "Node execution timed out after 5000ms", TIMEOUT),
        ("", "HTTP 429", RATE_LIMIT),
        ("", "set ANTHROPIC_API_KEY", AUTH),
        ("", "ECONNREFUSED 127.0.0.1:80", NETWORK),
        ("", "KeyError: 'x'", OTHER),
        ("", "500 Internal Server Error", NETWORK),
        ("", "API Error: 503 no healthy upstream", NETWORK),
        ("", "502 Bad Gateway", NETWORK),
        ("", "Request failed with status code 520", NETWORK),
        ("exception", "503 Service Unavailable", NETWORK),
        ("error_during_execution", "API Error: 500", NETWORK),
        ("server_error", "server_error", NETWORK),
        ("", "500 items are too many", OTHER),
        ("", "500 status code (no body)", NETWORK),
        ("", "503 upstream connect error or disconnect/reset before headers", NETWORK),
        ("", "502 <html>", NETWORK),
        ("", "503", NETWORK),
        ("", "HTTP/1.1 500", NETWORK),
        ("APIError", "500 status code (no body)", NETWORK),
        ("api_error", "503", NETWORK),
        ("", "error: 512 tokens too many", OTHER),
    ],
)
def test_the_type_of_a_failure_makes_the_sentence(error_type: str, text: str, sentence: str) -> None:
    assert failed_step("a", error_type, text, "r") == sentence


@pytest.mark.parametrize(
    ("error_type", "text", "sentence"),
    [
        ("public", "Nothing was found.", "Nothing was found."),
        (None, "search timed out after 30 s", "search timed out after 30 s"),
        (None, "the call timed out after 2.5s", "search timed out after 2.5 s"),
        (None, "Request timeout", "search took too long and was stopped. Please try again."),
        (None, "fetch failed: ENOTFOUND", "search could not reach a service that it needs. Please try again."),
        (None, "Traceback …", "search failed. Reference: r"),
    ],
)
def test_a_tool_that_failed_is_named(error_type: str | None, text: str, sentence: str) -> None:
    assert failed_tool("search", error_type, text, lambda: "r") == (sentence, "r")

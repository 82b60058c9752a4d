"""The WebSocket route: a real client on a real socket of a real uvicorn, every frame by value."""

from typing import Any

import httpx2
import pytest

from tests.conformance.served import PATIENCE, Served
from tests.server.socket_apps import GATES, body_of, opened

pytestmark = pytest.mark.external_agents

# Send


def test_a_turn_frame_by_frame(server: Served) -> None:
    GATES.open("turn")
    with opened(server) as client:
        client.send("r1", "turn")
        frames = client.frames("r1")
    first = frames[1]["chunk"]
    assert first["messageId"].startswith("msg-")
    chunks = [
        first,
        {"type": "start-step"},
        {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "one "},
        {"type": "text-delta", "id": "1", "delta": "two"},
        {"type": "text-end", "id": "1"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop"},
    ]
    assert frames == [
        {"type": "start", "requestId": "r1"},
        *[{"type": "chunk", "requestId": "r1", "sequence": i, "chunk": chunk} for i, chunk in enumerate(chunks)],
        {"type": "end", "requestId": "r1"},
    ]


def test_requests_on_one_socket_do_not_wait_for_each_other(server: Served) -> None:
    with opened(server) as client:
        client.send("r1", "first")
        client.until("r1", "one ")
        client.send("r2", "second")
        client.until("r2", "one ")
        GATES.open("second")
        rest = client.frames("r2")
        assert [frame["sequence"] for frame in rest if "chunk" in frame] == [4, 5, 6, 7]
        GATES.open("first")
        rest = client.frames("r1")
        assert [frame["sequence"] for frame in rest if "chunk" in frame] == [4, 5, 6, 7]


def test_as_many_requests_as_a_socket_may_carry_are_kept_apart(server: Served) -> None:
    names = [f"echo {number}" for number in range(32)]
    with opened(server, "echo") as client:
        for name in names:
            client.send(name, name, name * 10)
        frames = {name: client.frames(name) for name in names}
    for name in names:
        chunks = [frame for frame in frames[name] if frame["type"] == "chunk"]
        assert [chunk["sequence"] for chunk in chunks] == list(range(len(chunks)))
        assert "".join(chunk["chunk"].get("delta", "") for chunk in chunks) == name * 10


def test_a_failure_of_the_agent_is_a_chunk(server: Served) -> None:
    GATES.open("failing")
    with opened(server) as client:
        client.send("r1", "failing", "fail")
        frames = client.frames("r1")
    (error,) = [frame["chunk"] for frame in frames if frame.get("chunk", {}).get("type") == "error"]
    assert error["errorText"].startswith("An error occurred. Reference: ")
    assert frames[-1] == {"type": "end", "requestId": "r1"}


@pytest.mark.parametrize(
    ("query", "handshake", "headers", "kind"),
    [
        ("", {}, {}, "custom"),
        ("?sdk=6", {}, {}, "data-custom"),
        ("", {"x-ai-sdk": "6"}, {}, "data-custom"),
        ("", {}, {"x-ai-sdk": "6"}, "data-custom"),
    ],
)
def test_an_answer_is_for_release_7_unless_another_is_named(
    server: Served, query: str, handshake: dict[str, str], headers: dict[str, str], kind: str
) -> None:
    with opened(server, "custom", query, additional_headers=handshake) as client:
        client.send("r1", "sdk", headers=headers)
        assert kind in [frame["chunk"]["type"] for frame in client.frames("r1") if "chunk" in frame]


# Resume


def test_a_resumed_stream_begins_at_its_start_and_goes_on(server: Served) -> None:
    with opened(server) as client, opened(server) as other:
        client.send("r1", "resumed")
        client.until("r1", "one ")
        other.resume("r2", "resumed")
        other.until("r2", "one ")
        GATES.open("resumed")
        assert other.text("r2") == "two"
        assert client.text("r1") == "two"


def test_a_socket_resumes_what_http_has_sent(server: Served) -> None:
    with opened(server, "owned") as client:
        headers = {"authorization": "Bearer ada"}
        question = body_of("ada posted")
        with httpx2.stream("POST", server.url("owned"), json=question, headers=headers, timeout=PATIENCE) as posted:
            lines = posted.iter_lines()
            while "one " not in next(lines):
                pass
            client.resume("r1", "ada posted", headers=headers)
            assert client.frame("r1") == {"type": "start", "requestId": "r1"}
            client.until("r1", "one ")
            GATES.open("ada posted")
            assert client.text("r1") == "two"
            assert any("two" in line for line in lines)


def test_there_is_nothing_to_resume_of_an_unknown_an_idle_or_a_foreign_chat(server: Served) -> None:
    ada, bob = {"authorization": "Bearer ada"}, {"authorization": "Bearer bob"}
    GATES.open("ada idle")
    with opened(server, "owned") as client:
        client.send("r1", "ada idle", headers=ada)
        client.frames("r1")
        client.send("r2", "ada busy", headers=ada)
        client.until("r2", "one ")
        client.resume("r3", "ada unknown", headers=ada)
        client.resume("r4", "ada idle", headers=ada)
        client.resume("r5", "ada busy", headers=bob)  # the rule says no
        client.resume("r6", "ada busy", headers={"authorization": "Bearer admin"})  # the rule says yes, the run says no
        for request_id in ("r3", "r4", "r5", "r6"):
            assert client.frames(request_id) == [{"type": "no-active", "requestId": request_id}]
        GATES.open("ada busy")
        assert client.text("r2") == "two"


# Refusals

REFUSED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("owned", body_of("ada"), {}),
    ("owned", body_of("ada"), {"authorization": "Bearer bob"}),
    ("owned", body_of("ada taken"), {"authorization": "Bearer ada"}),
    ("owned", body_of("ada taken"), {"authorization": "Bearer admin"}),
    ("owned", body_of("mallory"), {"authorization": "Bearer mallory"}),
    ("open", body_of("a") | {"messages": []}, {}),
    ("open", body_of("a") | {"messages": [{"role": "nobody"}]}, {}),
    ("open", body_of("a") | {"messages": "hi"}, {}),
    ("open", body_of("a") | {"trigger": "other"}, {}),
    ("open", body_of("a"), {"x-ai-sdk": "4"}),
    ("small", body_of("a", "x" * 1000), {}),
]


@pytest.mark.parametrize(("app", "body", "headers"), REFUSED)
def test_a_refusal_says_what_http_says(server: Served, app: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    with opened(server, "owned") as first:
        if body["id"] == "ada taken":
            first.send("r0", "ada taken", headers={"authorization": "Bearer ada"})
            first.until("r0", "one ")
            body = body | {"messages": [{**body["messages"][0], "id": "another"}]}
        posted = httpx2.post(server.url(app), json=body, headers=headers, timeout=PATIENCE)
        assert posted.status_code >= 400
        with opened(server, app) as client:
            client.ask({"type": "send", "requestId": "r1", "headers": headers, **body})
            assert client.frames("r1") == [{"type": "error", "requestId": "r1", "errorText": posted.text}]
            client.resume("r2", "unknown", headers={"authorization": "Bearer unknown"})
            assert client.frame("r2")["type"] == "no-active", "the socket lives on"
    assert "secret" not in posted.text


@pytest.mark.parametrize(
    ("app", "frame", "text"),
    [
        ("owned", {"type": "resume", "id": "ada"}, "Who are you?"),
        ("open", {"type": "resume", "id": 1}, "the chat id must be a string, not a number"),
        (
            "open",
            {"type": "resume", "id": "ada", "headers": {"a": 1}},
            "headers: 'a' is not a header that HTTP could carry",
        ),
        ("open", {"type": "send", "body": []}, "body must be an object, not an array"),
    ],
)
def test_a_frame_that_is_refused(server: Served, app: str, frame: dict[str, Any], text: str) -> None:
    with opened(server, app) as client:
        client.ask({"requestId": "r1"} | frame)
        assert client.frames("r1") == [{"type": "error", "requestId": "r1", "errorText": text}]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("hello", "A frame is not JSON."),
        (b'{"type":"abort","requestId":"r"}', "A frame is not JSON."),
        ('{"type":"ping","requestId":"r"}', "The type of a frame is send, resume or abort."),
        ('{"type":"abort"}', "The requestId of a frame is a string of up to 256 characters."),
    ],
)
def test_a_frame_that_cannot_be_answered_closes_the_socket(server: Served, frame: str | bytes, reason: str) -> None:
    with opened(server) as client:
        client.connection.send(frame)
        assert client.closed() == (1008, reason)


def test_a_request_id_is_used_once_at_a_time(server: Served) -> None:
    GATES.open("again")
    with opened(server) as client:
        client.send("r1", "again")
        client.frames("r1")
        client.send("r1", "in use")
        client.until("r1", "one ")
        client.send("r1", "again")
        assert client.closed() == (1008, "The requestId is in use.")


def test_a_socket_carries_a_limited_number_of_requests(server: Served) -> None:
    with opened(server, "small") as client:
        for name in ("s1", "s2"):
            client.send(name, name)
            client.until(name, "one ")
        client.send("s3", "s3")
        assert client.frames("s3") == [
            {"type": "error", "requestId": "s3", "errorText": "More than 2 requests at once on one connection."}
        ]
        GATES.open("s1")
        assert client.text("s1") == "two"
        GATES.open("s3")
        client.send("s3", "s3")
        assert client.text("s3") == "one two"
        GATES.open("s2")

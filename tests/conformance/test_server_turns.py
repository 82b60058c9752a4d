"""Full turns of every kind of agent, bare and behind middleware: the newest clients against a real uvicorn."""

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware

from tests.conformance.http_client import NEWEST, Browser, said, text_of
from tests.conformance.served import Gates, Served, eventually, serving
from usechat import parts
from usechat.protocol import chunks
from usechat.server import ChatApp, Settings, chat_response
from usechat.turn import Turn, emit

GATES = Gates()


async def everything(_turn: Turn) -> AsyncIterator[str | parts.Part]:
    yield parts.Metadata({"model": "m"})
    yield parts.Reasoning("Let me ")
    yield parts.Reasoning("think.")
    yield parts.ToolInputStart("c1", "weather")
    yield parts.ToolInputDelta("c1", '{"city":')
    yield parts.ToolInputDelta("c1", '"Paris"}')
    yield parts.ToolCall("c1", "weather", {"city": "Paris"})
    yield parts.ToolResult("c1", {"degrees": 21})
    yield parts.Data("progress", {"done": 1}, "p")
    yield parts.Data("progress", {"done": 2}, "p")
    yield parts.Data("notice", "only now", transient=True)
    yield parts.SourceUrl("s1", "https://example.org", "Example")
    yield "It is 21 °C "
    yield "in Paris 🙂"
    yield parts.Finish(usage={"tokens": 3})


def in_a_thread(turn: Turn) -> Iterator[str | parts.Part]:
    yield f"You said {turn.text}"
    emit("thread", threading.current_thread() is not threading.main_thread())
    yield "."


def one_text(turn: Turn) -> str:
    return f"You said {turn.text}."


async def one_text_later(turn: Turn) -> str:
    await asyncio.sleep(0)
    return f"You said {turn.text}."


class Transport:
    """The seam itself: an agent that is a chat transport."""

    async def send_messages(self, request: Any) -> AsyncIterator[Any]:
        async def stream() -> AsyncIterator[Any]:
            yield chunks.StartChunk("theirs")
            yield chunks.TextStartChunk("t")
            yield chunks.TextDeltaChunk("t", f"You said {request.text}.")
            yield chunks.TextEndChunk("t")
            yield chunks.FinishChunk()

        return stream()

    async def reconnect_to_stream(self, chat_id: str) -> None:  # noqa: ARG002
        return None


async def emitting(turn: Turn) -> AsyncIterator[str]:
    yield "before "

    def deep_inside() -> None:
        emit("deep", 1)

    async def in_a_task() -> None:
        deep_inside()

    await asyncio.gather(in_a_task(), asyncio.to_thread(emit, "worker", 2))
    thread = threading.Thread(target=turn.emit, args=("bare", 3))
    thread.start()
    await asyncio.to_thread(thread.join)
    yield "after"


async def step_by_step(turn: Turn) -> AsyncIterator[str]:
    for name in ("one", "two", "three"):
        yield f"{name} "
        await GATES.passed(turn, name)


def fast_api() -> FastAPI:
    app = FastAPI()

    @app.post("/api/chat")
    async def chat(request: Request) -> Any:
        return await chat_response(request, everything)

    @app.middleware("http")
    async def stamp(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-stamp"] = "1"
        return response

    return app


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        "everything": ChatApp(everything),
        "thread": ChatApp(in_a_thread),
        "function": ChatApp(one_text),
        "coroutine": ChatApp(one_text_later),
        "transport": ChatApp(Transport()),
        "emitting": ChatApp(emitting),
        "gzip": GZipMiddleware(ChatApp(step_by_step), minimum_size=1),
        "fastapi": fast_api(),
        "silent": ChatApp(step_by_step, settings=Settings(keep_alive=0.05)),
    }
    with serving(apps) as running:
        yield running


def shape(message: Any) -> list[Any]:
    """Return what the parts of a message say, without what differs between majors."""
    return [
        {key: part[key] for key in ("type", "text", "state", "input", "output", "data", "url") if key in part}
        for part in message["parts"]
    ]


FULL_TURN = [
    {"type": "step-start"},
    {"type": "reasoning", "text": "Let me think.", "state": "done"},
    {"type": "tool-weather", "state": "output-available", "input": {"city": "Paris"}, "output": {"degrees": 21}},
    {"type": "data-progress", "data": {"done": 2}},
    {"type": "source-url", "url": "https://example.org"},
    {"type": "step-start"},
    {"type": "text", "text": "It is 21 °C in Paris 🙂", "state": "done"},
]


STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
    "cache-control": "no-cache, no-transform",
}


@pytest.mark.parametrize("app", ["everything", "fastapi"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_full_turn_shows_everything_the_agent_said(browser: Browser, served: Served, release: str, app: str) -> None:
    page = browser.open(release, served.url(app), chat_id=f"full-{release}")
    page.send("hi")
    message = page.answer()
    view = page.look()
    assert shape(message) == FULL_TURN
    assert message["metadata"] == {"model": "m", "usage": {"tokens": 3}, "finishReason": "stop"}
    assert message["id"].startswith("msg-")
    assert [part["type"] for part in view["data"]] == ["data-progress", "data-progress", "data-notice"]
    assert [call["toolName"] for call in view["toolCalls"]] == ["weather"]
    assert [request["status"] for request in view["requests"]] == [200]


@pytest.mark.parametrize("app", ["function", "coroutine", "transport", "thread"])
@pytest.mark.parametrize("release", NEWEST)
def test_every_kind_of_agent_answers(browser: Browser, served: Served, release: str, app: str) -> None:
    page = browser.open(release, served.url(app), chat_id=f"{app}-{release}")
    page.send("hi")
    page.answer()
    assert text_of(page.look()) == "You said hi."


def test_a_generator_runs_in_a_thread_and_can_emit(browser: Browser, served: Served) -> None:
    page = browser.open(NEWEST[-1], served.url("thread"), chat_id="thread-emits")
    page.send("hi")
    assert [(part["type"], part.get("data")) for part in page.answer()["parts"]] == [
        ("step-start", None),
        ("text", None),
        ("data-thread", True),
    ]


@pytest.mark.parametrize("release", NEWEST)
def test_emit_works_deep_inside_and_from_threads(browser: Browser, served: Served, release: str) -> None:
    page = browser.open(release, served.url("emitting"), chat_id=f"emit-{release}")
    page.send("hi")
    parts_seen = page.answer()["parts"]
    assert {part["type"]: part["data"] for part in parts_seen if part["type"].startswith("data-")} == {
        "data-deep": 1,
        "data-worker": 2,
        "data-bare": 3,
    }
    assert text_of(page.look()) == "before after"


@pytest.mark.parametrize("release", NEWEST)
def test_frames_pass_gzip_middleware_one_by_one(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"gzip-{release}"
    page = browser.open(release, served.url("gzip"), chat_id=chat_id)
    page.send("hi")
    page.until_text("one ")
    GATES.open(chat_id, "one")
    page.until_text("one two ")
    GATES.open(chat_id, "two")
    page.until_text("one two three ")
    assert page.look()["status"] == "streaming"
    GATES.open(chat_id, "three")
    page.answer()


@pytest.mark.parametrize("release", NEWEST)
def test_turns_follow_each_other_with_the_whole_history(browser: Browser, served: Served, release: str) -> None:
    page = browser.open(release, served.url("function"), chat_id=f"history-{release}")
    for text in ("one", "two", "three"):
        page.send(text)
        page.answer()
    view = page.look()
    assert [message["role"] for message in view["messages"]] == ["user", "assistant"] * 3
    assert len({message["id"] for message in view["messages"]}) == 6
    assert [len(request["body"]["messages"]) for request in view["requests"]] == [1, 3, 5]
    page.call("regenerate")
    page.until(lambda now: len(now["requests"]) == 4)
    page.answer()
    assert text_of(page.look()) == "You said three."
    assert len(page.look()["messages"]) == 6


@pytest.mark.parametrize("named", ["query", "header"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_page_that_names_its_release_gets_what_it_knows(
    browser: Browser, served: Served, release: str, named: str
) -> None:
    query = f"?sdk={release}" if named == "query" else ""
    headers = {"x-ai-sdk": release} if named == "header" else {}
    url = served.url("everything") + query
    page = browser.open(release, url, chat_id=f"{named}-{release}", headers=headers)
    page.send("hi")
    # For any release the reason stands in the metadata; those that know it as a field are told so.
    assert page.answer()["metadata"] == {"model": "m", "usage": {"tokens": 3}}
    assert page.look()["finishes"][-1].get("finishReason") == "stop"


def test_headers_and_a_first_comment_come_at_once_and_comments_keep_the_silence_alive(served: Served) -> None:
    with posted(served, "silent", "silence") as response:
        headers = {name.lower(): value for name, value in response.getheaders()}
        assert headers.items() >= STREAM_HEADERS.items()
        assert [response.readline() for _ in range(2)] == [b": stream-open\n", b"\n"]
        while not response.readline().startswith(b'data: {"type":"text-delta"'):
            pass
        comments = [response.readline() for _ in range(5)]
        assert comments == [b"\n", b": keep-alive\n", b"\n", b": keep-alive\n", b"\n"]
        for name in ("one", "two", "three"):
            GATES.open("silence", name)
        assert response.read().endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("release", NEWEST)
def test_comments_in_the_silence_do_not_disturb_the_page(browser: Browser, served: Served, release: str) -> None:
    chat_id = f"silent-{release}"
    page = browser.open(release, served.url("silent"), chat_id=chat_id)
    page.send("hi")
    for text, gate in (("one ", "one"), ("one two ", "two"), ("one two three ", "three")):
        page.until_text(text)
        eventually(served.later(0.12).done, "comments are sent")
        GATES.open(chat_id, gate)
    page.answer()
    assert text_of(page.look()) == "one two three "


@contextmanager
def posted(served: Served, app: str, chat_id: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    body = json.dumps({"id": chat_id, "messages": [said("user", "hi")]})
    connection.request("POST", f"/{app}/api/chat", body, {"content-type": "application/json"})
    with closing(connection), connection.getresponse() as response:
        yield response

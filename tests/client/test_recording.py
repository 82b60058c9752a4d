"""Recordings: what is written, how it is played, and how two differ."""

import asyncio
import io
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.client.endpoints import HELLO, HELLO_BYTES, Endpoint, frame, served
from tests.conformance.served import serving, unanswered_port
from usechat import parts
from usechat.check import check_capture
from usechat.check.formats import text_report
from usechat.client import Chat, HttpChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.client.recording import (
    RecordingProxy,
    StreamPlayer,
    StreamRecorder,
    StreamRecording,
    first_difference,
)
from usechat.errors import InvalidAddress, InvalidSetting, RequestRefused, UnusableFile
from usechat.server import ChatApp
from usechat.turn import Turn

pytestmark = pytest.mark.quick


async def weather(turn: Turn) -> AsyncIterator[str | parts.Part]:
    yield parts.ToolCall("c1", "weather", {"city": turn.text})
    yield parts.ToolResult("c1", {"celsius": 21})
    yield "It is 21."


class Recorded:
    """A recording in the making, in memory."""

    def __init__(self, url: str) -> None:
        self._file = io.StringIO()
        self.proxy = RecordingProxy(url, StreamRecorder(self._file, url))

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def recording(self) -> StreamRecording:
        return StreamRecording.parse(self.text.splitlines())


async def chat_through(app: Any, *questions: str, headers: Any = None) -> list[Any]:
    """Ask questions of an ASGI app; return the answers' texts."""
    transport = HttpChatTransport(
        "http://page/api/chat", headers=headers or {}, http=InProcessTransport(app), retries=0
    )
    answers = []
    async with transport, Chat(transport, id="c1") as chat:
        for question in questions:
            answer = await chat.send(question)
            assert answer is not None
            answers.append(answer.text)
    return answers


async def record(agent: Any, *questions: str) -> StreamRecording:
    with serving({"app": ChatApp(agent)}) as running:
        recorded = Recorded(running.url("app"))
        await chat_through(recorded.proxy, *questions)
        await recorded.proxy.aclose()
    return recorded.recording


async def with_cookies(_request: Request) -> Response:
    response = Response(HELLO_BYTES, media_type="text/event-stream")
    response.set_cookie("one", "1", expires=0)
    response.set_cookie("two", "2")
    return response


async def test_each_cookie_of_the_endpoint_reaches_the_page() -> None:
    with serving({"app": Starlette(routes=[Route("/{rest:path}", with_cookies, methods=["POST"])])}) as running:
        recorded = Recorded(f"http://127.0.0.1:{running.port}/app")
        async with httpx2.AsyncClient(transport=InProcessTransport(recorded.proxy)) as page:
            answer = await page.post("http://page/api/chat", json={})
        await recorded.proxy.aclose()
    assert [cookie.partition("=")[0] for cookie in answer.headers.get_list("set-cookie")] == ["one", "two"]
    assert answer.content == HELLO_BYTES


async def test_what_is_recorded_is_played_back() -> None:
    recording = await record(weather, "Paris", "Rome")
    assert [exchange.status for exchange in recording.exchanges] == [200, 200]
    assert [exchange.end for exchange in recording.exchanges] == ["complete", "complete"]
    assert recording.questions[0].body["messages"][0]["parts"][0]["text"] == "Paris"
    played = await chat_through(StreamPlayer(recording, speed=math.inf), "anything", "else")
    assert played == ["It is 21.", "It is 21."]


async def test_a_recording_can_be_checked() -> None:
    recording = await record(weather, "Paris")
    capture = recording.questions[0].capture("tour")
    assert check_capture(capture, ["any"]).ok
    assert [size for _, size in capture.arrivals][-1] == len(capture.body)


async def test_secrets_are_left_out() -> None:
    endpoint = Endpoint()
    with served(endpoint) as url:
        recorded = Recorded(f"{url}?key=secret-1")
        secrets = {"authorization": "Bearer secret-2", "cookie": "secret-3", "x-api-key": "secret-4"}
        assert await chat_through(recorded.proxy, "hi", headers=secrets) == ["Hello"]
        await recorded.proxy.aclose()
    assert endpoint.headers[0]["authorization"] == "Bearer secret-2"
    assert "secret" not in recorded.text
    assert recorded.recording.exchanges[0].request_headers["content-type"] == "application/json"


async def test_one_line_is_one_frame_with_its_time() -> None:
    with served(Endpoint([HELLO_BYTES[:70], HELLO_BYTES[70:], b"rest"])) as url:
        recorded = Recorded(url)
        await chat_through(recorded.proxy, "hi")
        await recorded.proxy.aclose()
    lines = [json.loads(line) for line in recorded.text.splitlines()]
    frames = [line["data"] for line in lines if "data" in line]
    assert frames == [frame(chunk).decode() for chunk in HELLO] + ["data: [DONE]\n\n", "rest"]
    assert lines[0] == {"usechat": "recording", "version": 1, "url": url}
    times = [line["at"] for line in lines[1:]]
    assert times == sorted(times)


async def test_bytes_that_are_no_text_survive() -> None:
    file = io.StringIO()
    recorder = StreamRecorder(file, "http://h/")
    exchange = recorder.begin("POST", "", {}, None)
    recorder.data(exchange, b"\xff\xfe")
    assert StreamRecording.parse(file.getvalue().splitlines()).exchanges[0].content == b"\xff\xfe"


def test_unicode_line_separators_in_a_frame_survive(tmp_path: Path) -> None:
    path, text = tmp_path / "tour.usechat.jsonl", "a\u2028b\u2029c\u0085d"
    with path.open("w", encoding="utf-8") as file:
        recorder = StreamRecorder(file, "http://h/")
        recorder.data(recorder.begin("POST", "", {}, {"said": text}), text.encode())
    exchange = StreamRecording.read(path).exchanges[0]
    assert (exchange.body, exchange.content.decode()) == ({"said": text}, text)


async def test_an_endpoint_that_is_away_is_recorded_and_played() -> None:
    with unanswered_port() as port:
        recorded = Recorded(f"http://127.0.0.1:{port}/api/chat")
        with pytest.raises(RequestRefused, match="The endpoint cannot be reached"):
            await chat_through(recorded.proxy, "hi")
        await recorded.proxy.aclose()
    assert recorded.recording.exchanges[0].end == "broken"
    with pytest.raises(RequestRefused, match="could not be reached when this was recorded"):
        await chat_through(StreamPlayer(recorded.recording), "hi")


async def test_stop_and_resume_go_through_the_proxy() -> None:
    endpoint = Endpoint(frame(HELLO[0]) + frame(HELLO[2]) + frame(HELLO[3]), holds=True)
    with served(endpoint) as url:
        recorded = Recorded(url)
        transport = HttpChatTransport("http://page/api/chat", http=InProcessTransport(recorded.proxy), retries=0)
        async with transport, Chat(transport, id="c1") as chat:
            async for update in chat.send("hi"):
                if update.text_delta:
                    break
            await chat.stop()
            await chat.resume()
        await recorded.proxy.aclose()
    assert [(one.method, one.path) for one in recorded.recording.exchanges] == [
        ("POST", ""),
        ("POST", "/c1/stop"),
        ("GET", "/c1/stream"),
    ]
    assert recorded.recording.exchanges[0].end == "left"


LINES = [
    '{"usechat":"recording","version":1,"url":"http://h/api/chat"}',
    '{"exchange":1,"at":0,"request":{"method":"POST","path":"","body":{}}}',
    '{"exchange":1,"at":0.1,"response":{"status":200,"headers":{}}}',
    *(
        json.dumps({"exchange": 1, "at": 0.1 + number / 5, "data": frame(chunk).decode()})
        for number, chunk in enumerate(HELLO)
    ),
    '{"exchange":1,"at":2,"end":"complete"}',
]


@pytest.mark.parametrize(("speed", "seconds"), [(8.0, 0.15), (math.inf, 0.0)])
async def test_the_times_are_those_of_the_recording_at_any_speed(speed: float, seconds: float) -> None:
    began = asyncio.get_running_loop().time()
    await chat_through(StreamPlayer(StreamRecording.parse(LINES), speed=speed), "hi")
    assert asyncio.get_running_loop().time() - began >= seconds


async def test_each_frame_waits_for_its_step() -> None:
    steps: list[bytes] = []

    async def step(piece: bytes) -> None:
        steps.append(piece)

    assert await chat_through(StreamPlayer(StreamRecording.parse(LINES), step=step), "hi") == ["Hello"]
    assert steps == [frame(chunk) for chunk in HELLO]


async def test_a_stop_ends_the_wait_for_a_step() -> None:
    is_asked = asyncio.Event()

    async def step(_piece: bytes) -> None:
        is_asked.set()
        await asyncio.Event().wait()

    player = StreamPlayer(StreamRecording.parse(LINES), step=step)
    transport = HttpChatTransport("http://page/api/chat", http=InProcessTransport(player), retries=0)
    async with transport, Chat(transport, id="c1") as chat:
        reply = chat.send("hi")
        await is_asked.wait()
        assert await transport.stop("c1")
        await reply
        assert chat.status == "ready"


async def test_a_player_that_is_stopped_stops_and_resumes_nothing() -> None:
    player = StreamPlayer(StreamRecording.parse(LINES), speed=0.01)
    transport = HttpChatTransport("http://page/api/chat", http=InProcessTransport(player), retries=0)
    async with transport, Chat(transport, id="c1") as chat:
        reply = chat.send("hi")
        while reply.task is not None and not reply.task.done():
            await transport.stop("c1")
        await reply
        await chat.resume()
        assert chat.status == "ready"


async def test_a_recording_that_is_over_says_so() -> None:
    with pytest.raises(RequestRefused, match=r"All answers of the recording \(1\) were played"):
        await chat_through(StreamPlayer(StreamRecording.parse(LINES), speed=math.inf), "hi", "hi")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "t is empty"),
        (["{}"], "t, line 1: the key 'usechat' is missing"),
        (['{"usechat":"recording","version":2}'], "t, line 1: a recording of version 1 is expected"),
        ([LINES[0], "nonsense"], "t, line 2: "),
        ([*LINES[:2], "", '{"exchange":1,"at":0,"end":"nonsense"}'], "t, line 4: end is one of complete, broken, left"),
        ([*LINES[:2], '{"exchange":1,"at":0,"bytes":"%"}'], "t, line 3: bytes is not base64"),
        ([*LINES[:2], '{"exchange":2,"at":0,"end":"left"}'], "t, line 3: the key 2 is missing"),
        ([*LINES[:2], LINES[2][:20]], "t, line 3: this is not JSON, or it is cut off (Expecting "),
        (["[]"], "t, line 1: a recording of version 1 is expected, not []"),
        (["[" * 100_000], "t, line 1: "),
        ([*LINES[:2], '{"exchange":1,"at":0,"data":5}'], "t, line 3: Expected `str | null`, got `int` - at `$.data`"),
        ([*LINES[:2], '{"exchange":1,"at":NaN,"end":"left"}'], "t, line 3: at is a number of seconds, not nan"),
        ([*LINES[:2], '{"exchange":1e999,"at":0}'], "t, line 3: Expected `int`"),
        (
            [*LINES[:2], '{"exchange":1,"at":0,"response":{"status":0,"headers":{}}}'],
            "t, line 3: Expected `int` >= 100",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_named_with_its_line(lines: list[str], text: str) -> None:
    with pytest.raises(UnusableFile) as failure:
        StreamRecording.parse(lines, name="t")
    assert str(failure.value).startswith(text)


@pytest.mark.parametrize(
    "messages",
    [
        {"a": 1},
        "x",
        5,
        [],
        [5],
        [{"role": "assistant"}],
        [{"role": "assistant", "id": "m", "parts": [{"type": "tool-x"}]}],
    ],
    ids=str,
)
def test_a_request_without_a_legal_message_is_continued_by_no_answer(messages: Any) -> None:
    recording = with_answer(body={"messages": messages})
    exchange = recording.exchanges[0]
    assert exchange.continues is None
    assert "t: accepted" in text_report(check_capture(exchange.capture("t"), ["any"]))
    assert first_difference(recording, recording) is None


def test_files_and_settings_that_make_no_sense_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match=r"nothing cannot be read: No such file or directory$"):
        StreamRecording.read(tmp_path / "nothing")
    (tmp_path / "latin").write_bytes(b"{\xe9}")
    with pytest.raises(UnusableFile, match=r"latin is not UTF-8 text: byte 1$"):
        StreamRecording.read(tmp_path / "latin")
    with pytest.raises(UnusableFile, match="nothing to play"):
        StreamPlayer(StreamRecording("http://h/", []))
    with pytest.raises(InvalidSetting, match="speed is greater than 0"):
        StreamPlayer(StreamRecording.parse(LINES), speed=0)
    with pytest.raises(InvalidAddress):
        RecordingProxy("nowhere", StreamRecorder(io.StringIO(), "nowhere"))


async def saying(*items: Any) -> StreamRecording:
    async def agent(_turn: Turn) -> AsyncIterator[Any]:
        for part in items:
            yield part

    return await record(agent, "hi")


CALL = parts.ToolCall("c1", "weather", {"city": "Paris"})


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        (["a"], ["a"], None),
        (
            [CALL, parts.ToolResult("c1", 1)],
            [parts.ToolCall("c9", "weather", {"city": "Paris"}), parts.ToolResult("c9", 1)],
            None,
        ),
        ([parts.SourceUrl("r1", "https://h/")], [parts.SourceUrl("r2", "https://h/")], None),
        (["a"], ["b"], 'answer 1: part 2 (text): text was "a", now it is "b"'),
        (
            [CALL, parts.ToolResult("c1", {"celsius": [21]})],
            [CALL, parts.ToolResult("c1", {"celsius": [22]})],
            "answer 1: part 2 (tool-weather): output.celsius[0] was 21, now it is 22",
        ),
        (
            [parts.Data("x", {"a": 1})],
            [parts.Data("x", {})],
            "answer 1: part 1 (data-x): data.a was 1, now it is missing",
        ),
        ([parts.Data("x", {})], [parts.Data("x", {"a": 1})], "answer 1: part 1 (data-x): data.a is new: 1"),
        (["a", parts.File("data:,", "text/plain")], ["a"], "answer 1: part 3 (file) is missing now"),
        (["a"], ["a", parts.File("data:,", "text/plain")], "answer 1: part 3 (file) is new"),
        (
            [parts.Metadata({"a": 1}), "a"],
            [parts.Metadata({"a": 2}), "a"],
            "answer 1: the message: metadata.a was 1, now it is 2",
        ),
    ],
)
async def test_the_first_difference_is_told_in_words(before: Any, after: Any, difference: str | None) -> None:
    assert first_difference(await saying(*before), await saying(*after)) == difference


def with_answer(**changes: Any) -> StreamRecording:
    recording = StreamRecording.parse(LINES)
    for name, value in changes.items():
        setattr(recording.exchanges[0], name, value)
    return recording


def test_the_ids_of_a_providers_items_may_differ() -> None:
    def said(item: str) -> StreamRecording:
        start = {"type": "text-start", "id": "1", "providerMetadata": {"openai": {"itemId": item}}}
        return with_answer(pieces=[(0.1, frame(HELLO[0])), (0.2, frame(start))])

    assert said("msg_1").exchanges[0].message()[0] != said("msg_2").exchanges[0].message()[0]
    assert first_difference(said("msg_1"), said("msg_2")) is None


def test_differences_beside_the_parts_are_told_too() -> None:
    plain = StreamRecording.parse(LINES)
    assert first_difference(plain, with_answer(status=500)) == "answer 1: the status was 200, now the status is 500"
    assert first_difference(plain, with_answer(status=None)) == "answer 1: the status was 200, now there is no response"
    failed = with_answer(pieces=[*plain.exchanges[0].pieces, (3.0, frame({"type": "error", "errorText": "No."}))])
    assert first_difference(plain, failed) == 'answer 1: the error was null, now it is "No."'
    cut_off = with_answer(end="broken")
    assert first_difference(plain, cut_off) == "answer 1: the connection was not broken, now it is broken"
    assert first_difference(plain, with_answer(end="left")) is None
    assert first_difference(plain, StreamRecording("http://h/", [])) == "the number of answers was 1, now it is 0"

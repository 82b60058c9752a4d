"""Genkit behind `usechat serve` and in a custom route."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.cli.common_options import COMMON
from tests.conformance.served import Served, serving
from tests.genkit import scripted
from tests.genkit.asking import text_of
from tests.server.process import PATIENCE, question, serve_process
from usechat import ChunkDecoder, MessageBuilder, chat_response
from usechat.cli import main
from usechat.cli.plan import Plan, make_app
from usechat.errors import MissingDependency
from usechat.genkit.target import GenkitOptions, GenkitTarget
from usechat.protocol.request import ChatRequest
from usechat.targets import TargetAgent

ROOT = Path(__file__).parent.parent.parent
MINE = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.genkit.scripted import *\n"


def open_target(target: str, **options: Any) -> TargetAgent:
    return GenkitTarget().open(target, GenkitOptions(**options), COMMON)


def said(body: bytes) -> str:
    decoder, builder = ChunkDecoder(), MessageBuilder(sdk="7")
    for chunk in decoder.receive(body):
        builder.receive(chunk)
    return text_of(builder.message)


@pytest.mark.parametrize(
    ("target", "also"),
    [
        ("http://127.0.0.1:3400/chatFlow", ("/chatFlow/stream",)),
        ("https://example.org/api/chatFlow/#messages", ("/api/chatFlow/stream",)),
        ("http://127.0.0.1:3400", ()),
        ("tests.genkit.scripted:chat_flow", ("/chatFlow/stream",)),
        ("tests.genkit.scripted:prompt", ()),
    ],
)
def test_a_target_is_an_address_or_an_object(target: str, also: tuple[str, ...]) -> None:
    assert open_target(target).also == also


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("http://127.0.0.1/flow#json", "#json is not an input of a flow; there are #text, #history, #messages"),
        ("http:///flow", "'http:///flow' is not the address of a flow; give one such as http"),
        ("tests.genkit.scripted:add", "the flow add takes first, second, which a chat does not have; name the"),
        ("tests.genkit.scripted:ai", "Genkit is not a Genkit flow; give a URL, or a flow, prompt or agent"),
        ("127.0.0.1:3400/flow", "'127.0.0.1:3400/flow' is not the address of a flow; give one such as http"),
        ("chatFlow", "'chatFlow' names no object; give MODULE:NAME"),
        ("my/app.py", "'my/app.py' names no object; give MODULE:NAME"),
    ],
)
def test_a_bad_target_is_a_sentence(target: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--as", "genkit", target]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["http://127.0.0.1/flow", "--input", "question"],
            "--input 'question' maps nothing; write KEY=text or KEY=body",
        ),
        (["http://127.0.0.1/flow", "--input", "q=page"], "input: 'q' can come from text or from body.FIELD, not from"),
        (["http://127.0.0.1/flow#text", "--input", "q=text"], "#text and --input contradict each other; give one"),
        (
            ["http://127.0.0.1/flow", "--header", "x-key"],
            "--header: 'x-key' and its value are not a header; write",
        ),
        (["http://127.0.0.1/flow", "--header", "a b: c"], "--header: 'a b' and its value are not a header; write"),
        (["http://127.0.0.1/flow", "--upstream-token", "gone"], "--upstream-token: gone cannot be read: No such file"),
        (
            ["http://127.0.0.1/flow", "--respond-to", "ask"],
            "--respond-to is about approvals; give --interrupts approval",
        ),
        *(
            ([*target, "--interrupts", "approval"], "--interrupts approval needs an input that passes the answer on")
            for target in (
                ["http://127.0.0.1/flow"],
                ["http://127.0.0.1/flow#text"],
                ["http://127.0.0.1/flow", "--respond-to", "ask"],
                ["http://127.0.0.1/flow", "--input", "q=text"],
                ["tests.genkit.scripted:words", "--input", "q=text"],
            )
        ),
        (["tests.genkit.scripted:words", "--header", "a: b"], "--header is for a flow at an address; this one runs in"),
    ],
)
def test_bad_options_are_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--as", "genkit", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_without_a_token_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("one\ntwo\n", encoding="utf-8")
    arguments = ["http://127.0.0.1/flow", "--upstream-token", str(tmp_path / "token")]
    assert main(["serve", "--as", "genkit", *arguments]) == 2
    assert "holds no token of printable characters in one line" in capsys.readouterr().err


HEARD: list[tuple[dict[str, str], Any]] = []


@pytest.fixture
def upstream() -> Iterator[Served]:
    async def listening(request: Request) -> Response:
        HEARD.append((dict(request.headers), await request.json()))
        return Response('data: {"message":{"status":"looking"}}\n\ndata: {"result":"Hi"}\n\n')

    HEARD.clear()
    with serving({"genkit": Starlette(routes=[Route("/ask", listening, methods=["POST"])])}) as running:
        yield running


def test_the_options_reach_the_flow(tmp_path: Path, upstream: Served) -> None:
    (tmp_path / "token").write_text("upstream-secret\n", encoding="utf-8")
    address = f"http://127.0.0.1:{upstream.port}/genkit/ask"
    options = ["--input", "question=text,lang=body.lang", "--upstream-token", "token", "--header", "x-key: a=b"]
    with serve_process(tmp_path, "--as", "genkit", address, *options, "--send-data", "--pass-on", "x-team") as served:
        page = {"authorization": "Bearer of-the-page", "x-team": "blue", "x-other": "gone"}
        request = {**question("hi"), "lang": "it"}
        body = httpx2.post(f"{served.url}/api/chat", json=request, headers=page, timeout=PATIENCE).text
    assert "data-genkit-chunk" in body
    ((headers, data),) = HEARD
    assert data == {"data": {"question": "hi", "lang": "it"}}
    assert (headers["authorization"], headers["x-key"]) == ("Bearer upstream-secret", "a=b")
    assert (headers["x-team"], headers.get("x-other")) == ("blue", None)
    assert "of-the-page" not in str(headers)


async def test_the_tools_that_are_named_are_answered_by_a_response(upstream: Served) -> None:
    address = f"http://127.0.0.1:{upstream.port}/genkit/ask#messages"
    part = {"type": "tool-confirm", "toolCallId": "r1", "state": "approval-responded", "input": {}}
    message = {"id": "a1", "role": "assistant", "parts": [{**part, "approval": {"id": "x", "approved": True}}]}
    request = ChatRequest.parse({"id": "c1", "messages": [*question("hi")["messages"], message]})
    transport = open_target(address, interrupts="approval", respond_to=("confirm", "ask")).agent
    assert [chunk async for chunk in await transport.send_messages(request)]
    ((_, data),) = HEARD
    assert data["data"]["resume"] == {
        "respond": [{"toolResponse": {"name": "confirm", "ref": "r1", "output": {"approved": True}}}]
    }


INTERRUPTED = {
    "message": {"role": "model", "content": [{"toolRequest": {"name": "delete", "ref": "r1", "input": {}}}]},
}
INTERRUPT = {"toolRequest": {"name": "delete", "ref": "r1", "input": {}}, "metadata": {"interrupt": True}}


@pytest.mark.parametrize(
    ("options", "kind"), [([], None), (["--interrupts", "tool"], None), (["--interrupts", "approval"], "r1")]
)
def test_the_option_for_interrupts_decides_what_the_page_gets(
    tmp_path: Path, options: list[str], kind: str | None
) -> None:
    result = {"message": {"role": "model", "content": [INTERRUPT]}, "finishReason": "interrupted"}

    async def interrupted(_request: Request) -> Response:
        return Response(f"data: {json.dumps(INTERRUPTED)}\n\ndata: {json.dumps({'result': result})}\n\n")

    with serving({"": Starlette(routes=[Route("/ask", interrupted, methods=["POST"])])}) as running:
        address = f"http://127.0.0.1:{running.port}/ask#messages"
        with serve_process(tmp_path, "--as", "genkit", address, *options, "--sdk", "7") as served:
            body = httpx2.post(f"{served.url}/api/chat", json=question("hi"), timeout=PATIENCE).text
    frames = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    call_ids = [frame["toolCallId"] for frame in frames if frame["type"] == "tool-approval-request"]
    assert call_ids == ([] if kind is None else [kind])
    assert "tool-input-available" in [frame["type"] for frame in frames]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [([], "The agent did not accept this message."), (["--show-public-errors"], "Name a city.")],
)
def test_the_option_for_public_errors_decides_what_the_page_reads(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    async def refusing(_request: Request) -> Response:
        return Response(json.dumps({"error": {"status": "INVALID_ARGUMENT", "message": "Name a city."}}), 400)

    with serving({"": Starlette(routes=[Route("/ask", refusing, methods=["POST"])])}) as running:
        address = f"http://127.0.0.1:{running.port}/ask#text"
        with serve_process(tmp_path, "--as", "genkit", address, *options) as served:
            body = httpx2.post(f"{served.url}/api/chat", json=question("hi"), timeout=PATIENCE).text
    (error,) = [json.loads(line[6:])["errorText"] for line in body.splitlines() if '"type":"error"' in line]
    assert error.startswith(sentence)


@pytest.mark.parametrize("arguments", [["http://127.0.0.1/f#text"], ["http://127.0.0.1/f", "--input", "a=text"]])
def test_a_reflection_server_and_an_input_contradict_each_other(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--as", "genkit", *arguments, "--reflection", "http://127.0.0.1:3100"]) == 2
    assert "--reflection finds the input of the flow, so name none" in capsys.readouterr().err


def test_the_path_of_the_specification_resumes_and_stops(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    with serve_process(tmp_path, "--as", "genkit", "mine:endless") as served:
        path = f"{served.url}/endless/stream"
        with httpx2.stream("POST", path, json=question("hi", chat_id="c1"), timeout=PATIENCE) as posted:
            first = posted.iter_bytes()
            first_frame = next(first)
            assert httpx2.get(f"{path}/c1", timeout=PATIENCE).status_code == 200
            with httpx2.stream("GET", f"{path}/c1/stream", timeout=PATIENCE) as resumed:
                again = resumed.iter_bytes()
                begun_again = next(again)
                assert httpx2.post(f"{path}/c1/stop", timeout=PATIENCE).is_success
                assert said(first_frame + b"".join(first)) == said(begun_again + b"".join(again)) == "Wait"


async def test_a_flow_answers_in_a_route_of_one_s_own() -> None:
    async def chat(request: Request) -> Response:
        return await chat_response(request, scripted.words)

    transport = httpx2.ASGITransport(app=Starlette(routes=[Route("/api/chat", chat, methods=["POST"])]))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert said((await client.post("/api/chat", json=question("hi"))).content) == "You said: hi"


def test_the_app_of_an_object_is_made_without_naming_its_kind() -> None:
    assert make_app(Plan(target="tests.genkit.scripted:agent")).built_here


def test_the_command_serves_a_flow(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    with serve_process(tmp_path, "--as", "genkit", "mine:chat_flow") as served:
        for path in ("api/chat", "chatFlow/stream"):
            request = question("hello", chat_id=path.replace("/", "-"))
            answer = httpx2.post(f"{served.url}/{path}", json=request, timeout=PATIENCE)
            assert said(answer.content) == "Hello"
        assert "  POST /chatFlow/stream\n" in served.written
    with serve_process(tmp_path, "mine:words") as served:
        answer = httpx2.post(f"{served.url}/api/chat", json=question("hi"), timeout=PATIENCE)
        assert said(answer.content) == "You said: hi"


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genkit", None)
    monkeypatch.delitem(sys.modules, "usechat.genkit.local")
    with pytest.raises(MissingDependency, match=r"pip install 'usechat\[genkit\]'"):
        open_target("tests.genkit.scripted:words")

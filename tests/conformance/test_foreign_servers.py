"""Route handlers of `ai` 5, 6 and 7 in Node, asked by our client, tested with our assertions, and served by us."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conformance.http_client import NEWEST
from tests.conformance.judge import NODE_DIRECTORY, node_binary
from tests.server.process import PATIENCE, question, serve_process
from usechat.client import Chat, HttpChatTransport
from usechat.errors import StreamFailed
from usechat.server import ChatApp, Settings
from usechat.server.auth.tokens import new_api_token
from usechat.testing import AgentClient

RATE = 5
"""Requests in a minute."""
SIX_AND_SEVEN = [release for release in NEWEST if release[0] != "5"]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    command = [node_binary(), "routes.mjs", *NEWEST]
    with subprocess.Popen(command, cwd=NODE_DIRECTORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def url_of(base: str, release: str) -> str:
    return f"{base}/{release}/api/chat"


@pytest.mark.parametrize("release", NEWEST)
def test_text_tools_and_tools_of_the_page(base: str, release: str) -> None:
    with AgentClient(url_of(base, release), sdk=release, tools={"location": "here"}) as client:
        answer = client.ask("hello")
        answer.assert_legal(release)
        assert (answer.text, answer.reasoning, answer.deltas) == ("You said hello", "Hm.", ["You said ", "hello"])
        answer = client.ask("weather")
        answer.assert_legal(release)
        assert answer.tools[0].output == {"celsius": 21}
        assert answer.text == 'I got {"celsius":21}.'
        answer = client.ask("location")
        answer.assert_legal(release)
        assert (len(answer.exchanges), answer.text) == (2, 'I got "here".')


@pytest.mark.parametrize("release", SIX_AND_SEVEN)
@pytest.mark.parametrize(("approve", "text"), [(True, 'I got "removed".'), (False, "I got a no.")])
def test_approvals(base: str, release: str, approve: bool, text: str) -> None:
    with AgentClient(url_of(base, release), sdk=release, approve=approve) as client:
        answer = client.ask("remove")
        answer.assert_legal(release)
        assert (answer.text, answer.tools[0].approved) == (text, approve)


@pytest.mark.parametrize("release", NEWEST)
def test_a_failure_shows_nothing_internal(base: str, release: str) -> None:
    with AgentClient(url_of(base, release), sdk=release) as client:
        answer = client.ask("fail")
        assert isinstance(answer.error, StreamFailed)
        answer.assert_legal(release)
        answer.assert_redacted("swordfish")


@pytest.mark.parametrize("release", NEWEST)
async def test_a_running_answer_is_resumed(base: str, release: str) -> None:
    async with (
        Chat(url_of(base, release), sdk=release) as first,
        Chat(url_of(base, release), id=first.id, sdk=release) as second,
    ):
        await second.resume()
        assert second.messages == []
        reply = first.send("slow")
        async for update in reply:
            if update.text_delta == "word3 ":
                break
        async for update in second.resume():
            if update.text_delta == "word9 ":
                break
        assert second.last is not None
        assert second.last.text.startswith("word0 word1 word2 word3 ")
        await first.stop()
        await second.stop()


@pytest.mark.parametrize("release", NEWEST)
@pytest.mark.parametrize("sdk", ["5", "any"])
def test_a_route_handler_is_served_to_pages_of_every_release(base: str, release: str, sdk: str) -> None:
    app = ChatApp(lambda: HttpChatTransport(url_of(base, release)), settings=Settings(sdk=sdk))
    with AgentClient(app, sdk=sdk if sdk != "any" else "7", approve=True, tools={"location": "here"}) as client:
        for question, text in {
            "hello": "You said hello",
            "weather": 'I got {"celsius":21}.',
            "location": 'I got "here".',
            **({} if release[0] == "5" else {"remove": 'I got "removed".'}),
        }.items():
            answer = client.ask(question)
            answer.assert_legal(sdk)
            assert (answer.error, answer.text) == (None, text)


@pytest.mark.parametrize("release", NEWEST)
def test_a_route_handler_gets_resume_stop_auth_limits_metrics_and_the_page(
    base: str, release: str, tmp_path: Path
) -> None:
    token, line = new_api_token("ada")
    (tmp_path / "tokens.txt").write_text(line)
    headers = {"authorization": f"Bearer {token}"}
    options = ["--auth", f"tokens:{tmp_path / 'tokens.txt'}", "--rate", f"{RATE}/min"]
    with serve_process(tmp_path, "--as", "ai-sdk", url_of(base, release), *options) as running:
        url = f"{running.url}/api/chat"
        assert httpx2.get(running.url, timeout=PATIENCE).text.startswith("<!doctype html>")
        assert httpx2.post(url, json=question("hello"), timeout=PATIENCE).status_code == 401
        with AgentClient(url, headers=headers) as client:
            answer = client.ask("slowly")
            answer.assert_legal("any")
            assert (answer.error, answer.text.split()) == (None, [f"word{number}" for number in range(20)])
            answer.assert_resumes()
            client.run(client.check_stop("slow", 10))  # it would go on for 30 s
        metrics = httpx2.get(f"{running.url}/metrics", headers=headers, timeout=PATIENCE).text
        assert 'adapter_request_count_total{outcome="finished",status="200"} 2.0' in metrics
        answers = [httpx2.post(url, json=question("hello"), headers=headers, timeout=PATIENCE) for _ in range(RATE)]
        assert {answer.status_code for answer in answers} == {200, 429}

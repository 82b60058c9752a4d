"""What goes wrong between a page and Genkit: stops, cuts, refusals; each before the real npm clients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.conformance.genkit_servers import NodeServer, Watched, node_server, python_app
from tests.conformance.http_client import NEWEST, Browser, Page, View, text_of
from tests.conformance.served import Served, eventually, serving, unanswered_port
from tests.genkit import scripted
from usechat.genkit import GenkitChatTransport, text_input
from usechat.server import ChatApp

every_release = pytest.mark.parametrize("release", NEWEST)

INCOMPLETE = "The connection to the agent broke before the answer was complete. Send the message again."
PAGE = "<!doctype html><title>502 Bad Gateway</title>"


async def hanging(_request: Request) -> Response:
    """A stream that ends without a result, as behind a proxy that gives up."""
    return StreamingResponse(iter(['data: {"message":"Hel"}\n\n', 'data: {"mess']), media_type="text/event-stream")


async def result_only(_request: Request) -> Response:
    return JSONResponse({"result": {"text": "Hello"}})


def answering(response: Response) -> Any:
    async def answer(_request: Request) -> Response:
        return response

    return answer


FIXTURES = {
    path.stem: path.read_bytes() for path in (Path(__file__).parent.parent / "fixtures/genkit").glob("*-error.txt")
}
UPSTREAMS = {
    **{name: answering(Response(body, media_type="text/event-stream")) for name, body in FIXTURES.items()},
    "hanging": hanging,
    "result-only": result_only,
    "429": answering(JSONResponse({"error": "Rate limit exceeded."}, 429)),
    "429-later": answering(JSONResponse({"error": {"status": "RESOURCE_EXHAUSTED"}}, 429, {"retry-after": "30"})),
    "500": answering(PlainTextResponse("goroutine 7 [running]: secret", 500)),
    "502": answering(HTMLResponse(PAGE, 502)),
    "page": answering(HTMLResponse(PAGE)),
    "400": answering(JSONResponse({"message": "secret schema", "status": "INVALID_ARGUMENT"}, 400)),
    "401": answering(PlainTextResponse("no", 401)),
    "404": answering(PlainTextResponse("404 page not found", 404)),
}
SENTENCES = {
    "hanging": INCOMPLETE,
    "429": "The agent gets too many requests right now. Wait a minute and try again.",
    "429-later": "The agent gets too many requests right now. Try again in 30 seconds.",
    "500": "The agent failed while it answered. Try again.",
    "502": "The agent is not available right now. Try again in a moment.",
    "page": "An error page came instead of an answer. Try again in a moment.",
    "400": "The agent did not accept this message. Say it in another way.",
    "401": "The agent does not know who you are. Sign in again.",
    "404": "The agent was not found. Tell its operators.",
    "refused": "The agent cannot be reached right now. Try again in a moment.",
}


@pytest.fixture(scope="module")
def node() -> Iterator[NodeServer]:
    with node_server() as running:
        yield running


@pytest.fixture(scope="module")
def python() -> Watched:
    return python_app()


@pytest.fixture(scope="module")
def served(node: NodeServer, python: Watched) -> Iterator[Served]:
    routes = [Route(f"/{name}", answer, methods=["POST"]) for name, answer in UPSTREAMS.items()]
    with unanswered_port() as nobody, serving({"failing": Starlette(routes=routes), "python": python}) as upstream:
        url = f"http://127.0.0.1:{upstream.port}"
        apps = {name: ChatApp(GenkitChatTransport(f"{url}/failing/{name}")) for name in UPSTREAMS}
        apps |= {
            "refused": ChatApp(GenkitChatTransport(f"http://127.0.0.1:{nobody}")),
            "process": ChatApp(scripted.chat_flow),
            "agent": ChatApp(scripted.agent),
            "python": ChatApp(GenkitChatTransport(f"{url}/python/chatFlow")),
            "node": ChatApp(GenkitChatTransport(node.url("chatFlow"))),
            "durable": ChatApp(GenkitChatTransport(node.url("durable"), build_input=text_input)),
            "nothing": ChatApp(GenkitChatTransport(node.url("nothing"), build_input=text_input)),
        }
        with serving(apps) as running:
            yield running


def asked(browser: Browser, url: str, release: str, chat_id: str, text: str = "hello", **options: Any) -> Page:
    page = browser.open(release, url, chat_id=chat_id, **options)
    page.send(text)
    return page


def error_of(view: View) -> str:
    assert view["status"] == "error"
    assert view["error"] is not None
    return view["error"]["message"]


@pytest.mark.parametrize("upstream", SENTENCES)
@every_release
def test_a_failure_is_a_sentence_to_act_on(browser: Browser, served: Served, release: str, upstream: str) -> None:
    view = asked(browser, served.url(upstream), release, f"{upstream}-{release}").settled()
    assert error_of(view).partition(" Reference: ")[0] == SENTENCES[upstream]
    assert "secret" not in str(view)
    if upstream == "hanging":
        assert text_of(view) == "Hel"


@pytest.mark.parametrize("fixture", sorted(FIXTURES))
@every_release
def test_the_error_of_every_generation_of_servers_is_told(
    browser: Browser, served: Served, release: str, fixture: str
) -> None:
    view = asked(browser, served.url(fixture), release, f"{fixture}-{release}").settled()
    limited = "The agent gets too many requests right now. Wait a minute and try again."
    refused = "The agent did not accept this message. Say it in another way."
    sentence = {"go-1.3.0-error": limited, "next-error": refused}.get(fixture, SENTENCES["500"])
    assert (error_of(view).partition(" Reference: ")[0], text_of(view)) == (sentence, "Hel")


@every_release
def test_a_server_that_does_not_stream_is_read_as_well(browser: Browser, served: Served, release: str) -> None:
    page = asked(browser, served.url("result-only"), release, f"result-only-{release}")
    page.answer()
    assert text_of(page.look()) == "Hello"


@every_release
def test_a_flow_that_returns_nothing_is_an_empty_answer(browser: Browser, served: Served, release: str) -> None:
    message = asked(browser, served.url("nothing"), release, f"nothing-{release}").answer()
    assert [part["type"] for part in message["parts"]] == ["step-start"]


@every_release
def test_a_server_that_is_killed_in_the_middle_is_an_error(browser: Browser, release: str) -> None:
    with node_server() as node, serving({"app": ChatApp(GenkitChatTransport(node.url("chatFlow")))}) as served:
        page = asked(browser, served.url("app"), release, f"killed-{release}", "wait")
        page.until_text("Let me look.")
        eventually(lambda: node.heard()["started"], "the tool runs")
        node.kill()
        view = page.settled()
    assert error_of(view) == INCOMPLETE
    assert view["messages"][-1]["parts"][-1]["state"] == "output-error"


# Stopping


def stop(browser: Browser, served: Served, app: str, release: str, started: Any) -> View:
    page = asked(browser, served.url(app), release, f"stop-{app}-{release}", "wait", automatic=["tools"])
    page.until_text("Let me look.")
    eventually(started, "the tool runs")
    assert served.post(f"/{app}/api/chat/stop-{app}-{release}/stop") == 204
    view = page.settled()
    assert (view["status"], view["error"]) == ("ready", None)
    return view


@pytest.mark.parametrize("app", ["process", "agent"])
@every_release
def test_a_stop_in_the_middle_of_a_tool_cancels_the_flow_in_this_process(
    browser: Browser, served: Served, release: str, app: str
) -> None:
    scripted.STARTED.clear()
    scripted.CANCELLED.clear()
    view = stop(browser, served, app, release, lambda: scripted.STARTED)
    assert scripted.CANCELLED == ["tool"]
    assert "tool-wait" in [part["type"] for part in view["messages"][-1]["parts"]]


@every_release
def test_a_stop_closes_the_connection_to_a_python_server(
    browser: Browser, served: Served, python: Watched, release: str
) -> None:
    scripted.STARTED.clear()
    python.left.clear()
    stop(browser, served, "python", release, lambda: scripted.STARTED)
    eventually(lambda: python.left == ["/python/chatFlow"], "the server sees the connection close")


@every_release
def test_a_stop_closes_the_connection_to_a_node_server(
    browser: Browser, served: Served, node: NodeServer, release: str
) -> None:
    before = len(node.heard()["started"])
    left = node.heard()["left"].count("/chatFlow")
    stop(browser, served, "node", release, lambda: len(node.heard()["started"]) > before)
    eventually(lambda: node.heard()["left"].count("/chatFlow") == left + 1, "the server sees the connection close")


# Durable streams, headers


@every_release
def test_a_durable_stream_that_was_cut_goes_on_without_a_word_twice(
    browser: Browser, served: Served, node: NodeServer, release: str
) -> None:
    page = asked(browser, served.url("durable"), release, f"durable-{release}", "hi")
    assert page.answer()["parts"][1]["text"] == "You said: hi"
    first, again = [one for one in node.heard()["headers"] if one["path"] == "/durable"][-2:]
    assert "x-genkit-stream-id" not in first
    assert "x-genkit-stream-id" in again


def test_the_page_s_token_does_not_reach_the_server_and_harmless_headers_do(
    browser: Browser, served: Served, node: NodeServer
) -> None:
    headers = {"authorization": "Bearer t", "accept-language": "fr", "x-private": "1", "cookie": "a=b"}
    asked(browser, served.url("node"), NEWEST[-1], "headers", headers=headers).answer()
    request_headers = next(one for one in reversed(node.heard()["headers"]) if one.get("accept-language") == "fr")
    assert request_headers["accept"] == "text/event-stream"
    assert request_headers.keys().isdisjoint({"authorization", "x-private", "cookie", "origin"})

"""Two workers of `usechat serve` with one Redis and one PostgreSQL: a message reaches the flow on the other worker."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import httpx2
import pytest

from tests.conformance.http_client import NEWEST, PATIENCE, Browser, Page, text_of
from tests.open_harness import flow_of_workers
from tests.postgres_server import postgres_server
from tests.redis_server import redis_server
from tests.server.process import ServeProcess, serve_process

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServeProcess]]:
    with ExitStack() as stack:
        redis, postgres = stack.enter_context(redis_server("valkey")), stack.enter_context(postgres_server())
        flow = tmp_path_factory.mktemp("flow") / "talk.yaml"
        flow.write_text(flow_of_workers.FLOW, encoding="utf-8")
        shutil.copy(flow_of_workers.__file__, flow.parent)
        stores = ("--redis", redis.url, "--run-store", postgres)
        directories = [tmp_path_factory.mktemp("worker") for _ in range(2)]
        yield [stack.enter_context(serve_process(each, str(flow), *stores)) for each in directories]


class Chat(NamedTuple):
    """One chat on two pages, each of which reaches another worker."""

    chat_id: str
    pages: list[Page]


@pytest.fixture(params=NEWEST)
def chat(request: pytest.FixtureRequest, browser: Browser, workers: list[ServeProcess]) -> Chat:
    chat_id = f"chat-{next(_numbers)}"
    pages = [browser.open(request.param, f"{worker.url}/api/chat", chat_id=chat_id) for worker in workers]
    return Chat(chat_id, pages)


def test_a_message_to_a_flow_that_runs_on_another_worker_reaches_it(chat: Chat) -> None:
    here, there = chat.pages
    here.send("hello")
    here.until_text("Hello. ")
    there.send("one")
    there.until_text("You said one. ")
    first = here.settled()
    assert (first["status"], first["error"], text_of(first)) == ("ready", None, "Hello. ")
    here.send("two")  # the worker that runs the flow does not show it any more
    here.until_text("You said two. ")
    second = there.settled()
    assert (second["status"], second["error"], text_of(second)) == ("ready", None, "You said one. ")
    there.send("bye")
    last = there.settled()
    assert (last["status"], last["error"], text_of(last)) == ("ready", None, "You said bye. ")
    assert text_of(here.settled()) == "You said two. "


def test_a_flow_stops_on_its_worker_when_the_turn_of_another_is_stopped(
    chat: Chat, workers: list[ServeProcess]
) -> None:
    here, there = chat.pages
    here.send("hello")
    here.until_text("Hello. ")
    there.send("one")
    there.until_text("You said one. ")
    assert httpx2.post(f"{workers[0].url}/api/chat/{chat.chat_id}/stop", timeout=PATIENCE).status_code == 204
    stopped = there.settled()["messages"][-1]
    statuses = [part["data"]["status"] for part in stopped["parts"] if part["type"] == "data-flow-status"]
    assert statuses == ["aborted"]
    there.send("hello")
    there.until_text("Hello. ")  # of a new run
    there.send("bye")
    assert text_of(there.settled()) == "You said bye. "

"""`usechat serve --as a2a URL` and clients of `a2a-sdk`, with real A2A servers."""

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import AgentCard, AgentInterface

from tests.adapters.a2a_agent import served_executor
from tests.adapters.examples import FILES, check_page
from tests.conformance.served import unanswered_port
from usechat.adapters.a2a import A2aEndpoint, A2aSource, source_of
from usechat.cli.plan import Plan, make_app
from usechat.testing import AgentClient

pytestmark = [pytest.mark.live, pytest.mark.frameworks]

SECRET = "hunter2"


class Asking(AgentExecutor):  # type: ignore[misc]
    """Asks for a city and a country, then tells both; remembers what it was sent."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.headers: list[Any] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.received.append(context.message)
        self.headers.append(context.call_context.state["headers"])
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        messages = [message for message in self.received if message.task_id == context.task_id]
        await updater.add_artifact([new_text_part(f"{len(messages)}. ")])
        if len(messages) < 3:
            question = ["City?", "Country?"][len(messages) - 1]
            await updater.requires_input(updater.new_agent_message([new_text_part(question)]))
        else:
            await updater.complete(updater.new_agent_message([new_text_part(context.get_user_input())]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Replying(AgentExecutor):  # type: ignore[misc]
    """Answers every message with one message, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if self._fails:
            raise RuntimeError(SECRET)
        await event_queue.enqueue_event(new_text_message(f"You said {context.get_user_input()}."))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def client_of(plan: Plan, headers: Mapping[str, str] = {}, **options: Any) -> AgentClient:
    request_headers = {"host": "localhost", "x-ai-sdk": "7", **headers}
    return AgentClient(make_app(plan).app, path=plan.path, headers=request_headers, **options)


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_an_agent_at_an_address_answers_a_page(binding: str, streaming: bool) -> None:
    with (
        served_executor(Replying(), streaming=streaming, binding=binding) as url,
        client_of(Plan(target=url, kind="a2a")) as client,
    ):
        answer = client.ask("hi")
        answer.assert_legal(sdk="7")
        assert answer.text == "You said hi."


ANSWERS = {"City?": "Paris", "Country?": "France"}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "not streaming"])
def test_questions_are_answered_by_outputs(streaming: bool) -> None:
    agent = Asking()
    tools = {"interrupt": lambda question: ANSWERS[question["message"]]}
    with (
        served_executor(agent, streaming=streaming) as url,
        client_of(Plan(target=url, kind="a2a"), tools=tools) as client,
    ):
        answer = client.ask("Where?")
        answer.assert_legal(sdk="7")
        assert [tool.output for tool in answer.tools] == ["Paris", "France"]
        assert answer.text == "1. 2. 3. France"
        assert agent.received[0].task_id not in json.dumps(answer.message.parts)
    assert len({message.task_id for message in agent.received}) == 1
    assert [message.parts[0].text for message in agent.received] == ["Where?", "Paris", "France"]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "not streaming"])
def test_questions_are_answered_by_further_messages(streaming: bool) -> None:
    agent = Asking()
    with served_executor(agent, streaming=streaming) as url, client_of(Plan(target=url, kind="a2a")) as client:
        assert [client.ask(text).text for text in ("Where?", "Paris", "France")] == ["1. ", "2. ", "3. France"]
    assert len({message.task_id for message in agent.received}) == 1


def test_an_answer_in_another_chat_reaches_no_task() -> None:
    agent = Asking()
    with served_executor(agent) as url, client_of(Plan(target=url, kind="a2a")) as client:
        client.ask("Where?")
        messages: Any = client.messages
        messages[-1]["parts"][-1] |= {"state": "output-available", "output": "Paris"}
        with client_of(Plan(target=url, kind="a2a"), messages=messages) as other:
            assert "no longer waiting" in str(other.ask().error)
    assert len(agent.received) == 1


def test_the_agent_is_called_with_a_token_headers_and_what_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    agent = Asking()
    options = {"upstream_token": str(tmp_path / "token"), "header": ["x-team: blue"], "pass_on": ["X-Person"]}
    with (
        served_executor(agent) as url,
        client_of(
            Plan(target=f"{url}/.well-known/agent-card.json", kind="a2a", options=options), {"x-person": "ada"}
        ) as client,
    ):
        client.ask("Where?")
    headers = agent.headers[0]
    assert (headers["authorization"], headers["x-team"], headers["x-person"]) == ("Bearer abc", "blue", "ada")


def test_an_agent_that_fails_leaks_nothing() -> None:
    with served_executor(Replying(fails=True)) as url, client_of(Plan(target=url, kind="a2a")) as client:
        answer = client.ask("hi")
    assert answer.error is not None
    assert SECRET not in str(answer.error)


def test_an_agent_that_cannot_be_reached_is_a_sentence() -> None:
    with unanswered_port() as port, client_of(Plan(target=f"http://127.0.0.1:{port}", kind="a2a")) as client:
        assert str(client.ask("hi").error) == "The agent cannot be reached. Please try again later."


def test_an_address_without_a_card_fails_the_turn() -> None:
    with served_executor(Replying()) as url, client_of(Plan(target=f"{url}/nothing", kind="a2a")) as client:
        error = str(client.ask("hi").error)
    assert url not in error


def test_the_short_example_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Asking()
    assert len((FILES / "a2a_agent.py").read_text(encoding="utf-8").splitlines()) < 40
    with served_executor(agent) as url:
        monkeypatch.setenv("A2A_URL", url)
        example = runpy.run_path(str(FILES / "a2a_agent.py"))["agent"]
        with AgentClient(example, headers={"accept-language": "fr"}) as client:
            assert client.ask("Where?").tools[0].input == {"message": "City?"}
    assert agent.headers[0]["accept-language"] == "fr"


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    check_page("a2a", monkeypatch)


def test_a_client_answers_and_nothing_else_does() -> None:
    once = httpx.AsyncClient(headers={"connection": "close"})  # nobody closes it, so no connection may stay open
    with served_executor(Replying()) as url:
        interface = AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")
        client = ClientFactory(ClientConfig(httpx_client=once)).create(AgentCard(supported_interfaces=[interface]))
        assert isinstance(source_of(client), A2aSource)
        with AgentClient(client, headers={"x-ai-sdk": "7"}) as chat:
            assert chat.ask("hi").text == "You said hi."
    assert source_of("a text") is None
    assert A2aEndpoint(url).info.framework == "a2a"

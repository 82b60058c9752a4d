"""The schema of a flow as the real reflection server of the npm package tells it."""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.genkit_servers import node_server, reflection_url
from tests.genkit.asking import answer, asked, text_of, user
from usechat.errors import StreamFailed
from usechat.genkit import GenkitChatTransport, agent_input, messages_input
from usechat.genkit.inputs import InputBuilder


@pytest.mark.parametrize("name", ["conversation", "helper", "stateless"])
async def test_an_interrupt_is_answered_by_a_response_because_the_reflection_server_tells_what_it_is(
    tmp_path: Path, name: str
) -> None:
    with node_server(tmp_path) as node:
        reflection = reflection_url(tmp_path)
        transport = GenkitChatTransport(node.url(name), reflection=reflection, interrupts="approval")
        question: Any = await answer(transport, asked(user("confirm")))
        waiting = question["parts"][-1]
        assert (waiting["type"], waiting["state"]) == ("tool-confirm", "approval-requested")
        waiting["state"] = "approval-responded"
        waiting["approval"] = {**waiting["approval"], "approved": True}
        message = await answer(transport, asked(user("confirm"), question), message=question)
        assert text_of(message) == "May I?Thanks."
        assert waiting_output(message) == {"confirmed": True}


def waiting_output(message: Any) -> Any:
    return next(part["output"] for part in message["parts"] if part["type"] == "tool-confirm")


@pytest.mark.parametrize(("flow", "build_input"), [("conversation", messages_input), ("helper", agent_input)])
async def test_the_log_says_how_to_answer_an_interrupt_that_cannot_be_restarted(
    flow: str, build_input: InputBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    with node_server() as node:
        transport = GenkitChatTransport(node.url(flow), build_input=build_input, interrupts="approval")
        question: Any = await answer(transport, asked(user("confirm")))
        waiting = question["parts"][-1]
        waiting["state"] = "approval-responded"
        waiting["approval"] = {**waiting["approval"], "approved": True}
        assert "--respond-to" not in caplog.text
        with pytest.raises(StreamFailed, match="The agent failed while it answered"):
            await answer(transport, asked(user("confirm"), question), message=question)
    assert "after a restart of confirm" in caplog.text
    assert "--respond-to (in code: map_approval=respond_to(['confirm']))" in caplog.text


async def said_by(transport: GenkitChatTransport) -> str:
    return text_of(await answer(transport, asked(user("hello"))))


async def test_the_reflection_server_tells_what_a_flow_takes_and_the_flow_server_does_not(tmp_path: Path) -> None:
    with node_server(tmp_path) as node:
        reflection = reflection_url(tmp_path)
        for name, text in (("ask", "You asked: hello"), ("echo", "You said: hello"), ("chatFlow", "Hello")):
            assert await said_by(GenkitChatTransport(node.url(name), reflection=reflection)) == text
        with pytest.raises(StreamFailed, match="The agent failed while it answered"):
            await said_by(GenkitChatTransport(node.url("ask"), reflection=node.url("")))

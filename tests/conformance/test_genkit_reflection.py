"""The schema of a flow as the real reflection server of the npm package tells it."""

from pathlib import Path

import pytest

from tests.conformance.genkit_servers import node_server, reflection_url
from tests.genkit.asking import answer, asked, text_of, user
from usechat.errors import StreamFailed
from usechat.genkit import GenkitChatTransport


async def said_by(transport: GenkitChatTransport) -> str:
    return text_of(await answer(transport, asked(user("hello"))))


async def test_the_reflection_server_tells_what_a_flow_takes_and_the_flow_server_does_not(tmp_path: Path) -> None:
    with node_server(tmp_path) as node:
        reflection = reflection_url(tmp_path)
        for name, said in (("ask", "You asked: hello"), ("echo", "You said: hello"), ("chatFlow", "Hello")):
            assert await said_by(GenkitChatTransport(node.url(name), reflection=reflection)) == said
        with pytest.raises(StreamFailed, match="The agent failed while it answered"):
            await said_by(GenkitChatTransport(node.url("ask"), reflection=node.url("")))

"""The examples of docs/client.md are run."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_recording import LINES
from tests.conformance.served import serving
from usechat import parts
from usechat.server import ChatApp
from usechat.turn import Turn
from usechat.typescript import types_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def names_of(number: int) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(EXAMPLES[number], f"{PAGE.name}, example {number + 1}", "exec"), names)
    return names


async def weather(_turn: Turn) -> AsyncIterator[str | parts.Part]:
    yield parts.ToolCall("c1", "weather", {"city": "Paris"})
    yield parts.ToolResult("c1", {"celsius": 21})
    yield "It is 21."


async def asking(turn: Turn) -> AsyncIterator[str | parts.Part]:
    if turn.tool_outputs:
        yield f"In {turn.tool_outputs[0].output['city']}."
    else:
        yield parts.ToolCall("c1", "location", {})


def test_talking_to_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"weather": ChatApp(weather), "asking": ChatApp(asking)}) as served:
        asyncio.run(names_of(0)["main"](served.url("weather")))
        assert capsys.readouterr().out == "It is 21.\nweather {'celsius': 21}\n"
        names_of(1)["ask"](served.url("weather"))
        assert capsys.readouterr().out == "It is 21.\n"
        assert asyncio.run(names_of(2)["locate"](served.url("asking"))) == "In Paris."


def test_recordings(tmp_path: Path, usechat_client: Callable[..., Any]) -> None:
    path = tmp_path / "tour.usechat.jsonl"
    path.write_text("\n".join(LINES))
    names = names_of(4)
    assert usechat_client(names["replay"](str(path))).ask("hi").text == "Hello"
    assert names["compare"](str(path), str(path)) is None


def test_testing(usechat_client: Callable[..., Any], scripted_model: Callable[..., Any]) -> None:
    names_of(5)["test_agent_is_legal"](usechat_client)
    names_of(6)["test_agent_calls_its_tool"](scripted_model)


def test_serving_an_endpoint_and_types(usechat_client: Callable[..., Any]) -> None:
    assert isinstance(names_of(3)["app"], ChatApp)
    agent = names_of(7)["typed_agent"]
    answer = usechat_client(agent).ask("hi")
    assert (answer.data, answer.text) == ({"progress": [{"percent": 50}]}, "It is 21 °C.")
    assert list(types_of(agent).data) == ["progress"]
    assert len(EXAMPLES) == 8

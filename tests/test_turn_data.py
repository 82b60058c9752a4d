"""`emit` with data that has a type: the part is named after it."""

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from usechat import emit
from usechat.errors import LocalProtocolError
from usechat.protocol.parts import Data, data_name
from usechat.testing import AgentClient
from usechat.turn import Turn

pytestmark = [pytest.mark.core, pytest.mark.quick]


@dataclasses.dataclass
class Progress:
    percent: int


class SearchResult(msgspec.Struct):
    url: str


class HTTPStatus2(BaseModel):
    code: int


def answered(agent: Any) -> dict[str, list[Any]]:
    with AgentClient(agent) as client:
        answer = client.ask("hi")
        assert answer.error is None
        answer.assert_legal("any")
        return answer.data


def test_data_with_a_type_needs_no_name() -> None:
    def agent(turn: Turn) -> None:
        turn.emit(Progress(percent=40), id="p")
        emit(Progress(percent=50), id="p")
        emit(SearchResult("https://h/"))
        emit(HTTPStatus2(code=200))
        emit("plain", {"a": 1})
        emit("named", Progress(percent=1))
        emit("nothing", None)

    assert answered(agent) == {
        "progress": [{"percent": 50}],
        "search-result": [{"url": "https://h/"}],
        "http-status2": [{"code": 200}],
        "plain": [{"a": 1}],
        "named": [{"percent": 1}],
        "nothing": [None],
    }


@pytest.mark.parametrize("value", ["progress", 5, {"a": 1}, Progress, None])
def test_data_without_a_type_needs_a_name(value: Any) -> None:
    with pytest.raises(
        LocalProtocolError, match=r"^data without a name is a dataclass, a msgspec Struct or a pydantic"
    ):
        Data.of(value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Progress", "progress"),
        ("SearchResult", "search-result"),
        ("HTTPStatus", "http-status"),
        ("_Private", "private"),
    ],
)
def test_names_are_written_with_hyphens(name: str, expected: str) -> None:
    assert data_name(type(name, (), {})) == expected


def test_outside_of_a_turn_nothing_can_be_emitted() -> None:
    with pytest.raises(LocalProtocolError, match="no turn is running here"):
        asyncio.run(_emit_alone())


async def _emit_alone() -> None:
    emit(Progress(percent=1))

"""What MCP servers ask the user becomes a question of the page, and its answer what the server gets."""

import asyncio
import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import ElicitRequestFormParams, ElicitResult, ErrorData

from tests.adapters.turns import request, user
from usechat.adapters.elicitation import answer_to, elicit
from usechat.errors import RemoteProtocolError
from usechat.parts import Part, ToolCall
from usechat.protocol.request import ToolOutput
from usechat.testing import AgentClient
from usechat.turn import PageQuestion, Turn, TurnContext, TurnInput

ROOT = Path(__file__).parents[2]
SERVER = StdioServerParameters(command=sys.executable, args=[str(ROOT / "examples" / "mcp" / "restaurant.py")])
DECLINE = {"action": "decline"}


class Page:
    """Answers one question after the other, and keeps them."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.questions: list[Any] = []

    def answer(self, question: Any) -> Any:
        self.questions.append(question)
        return self._answers.pop(0)

    async def result(self, elicitation: Mapping[str, Any]) -> Any:
        """Return what a server gets for its request."""

        async def ask(question: PageQuestion) -> ToolOutput:
            question.show()
            call = parts[-1]
            assert isinstance(call, ToolCall)
            return ToolOutput(call.tool_call_id, "interrupt", output=self.answer(call.input))

        parts: list[Part] = []
        context = TurnContext(TurnInput(request(user("Hi."))))
        context.connect(parts.append)
        context.ask = ask
        context.enter()
        return await answer_to(elicitation)


def form(**fields: Any) -> dict[str, Any]:
    return {"message": "Who?", "requestedSchema": {"type": "object", "properties": fields, "required": list(fields)}}


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (accept(name="Ada"), accept(name="Ada")),
        ({"action": "decline", "content": {"name": "Ada"}}, {"action": "decline"}),
        ({"action": "cancel"}, {"action": "cancel"}),
    ],
)
async def test_the_server_gets_what_the_person_decided(answer: Any, result: Any) -> None:
    page = Page(answer)
    assert await page.result(form(name={"type": "string"})) == result
    assert page.questions == [{"mode": "form", **form(name={"type": "string"})}]


@pytest.mark.parametrize(
    ("field", "wrong", "right", "error"),
    [
        ({"type": "string"}, 3, "x", "it must be a text."),
        ({"type": "string", "minLength": 2}, "x", "xy", "it must be a text of at least 2 characters."),
        ({"type": "string", "maxLength": 2}, "xyz", "xy", "it must be a text of at most 2 characters."),
        ({"type": "string", "format": "email"}, "ada", "ada@example.org", "it must be an email address."),
        ({"type": "string", "format": "uri"}, "ada", "https://example.org", "it must be a URI."),
        ({"type": "string", "format": "uri"}, "http://[", "http://a", "it must be a URI."),
        ({"type": "string", "format": "date"}, "soon", "2026-12-31", "it must be a date such as 2026-12-31."),
        (
            {"type": "string", "format": "date-time"},
            "soon",
            "2026-12-31T12:00:00Z",
            "it must be a date and time such as 2026-12-31T12:00:00Z.",
        ),
        ({"type": "string", "enum": ["a", "b"]}, "c", "b", "it must be one of a, b."),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "c", "b", "it must be a or b."),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "c", None, "it must be a whole number or empty."),
        ({"type": ["integer", "null"]}, "c", None, "it must be a whole number or empty."),
        (
            {"type": ["string", "null"], "maxLength": 1},
            "cd",
            "c",
            "it must be a text of at most 1 characters or empty.",
        ),
        ({"type": ["string", "null"], "enum": ["a", None]}, "c", None, "it must be one of a, None."),
        ({"type": "integer"}, 1.5, 2.0, "it must be a whole number."),
        ({"type": "integer"}, True, 1, "it must be a whole number."),
        ({"type": "integer", "minimum": 1}, 0, 1, "it must be a whole number, at least 1."),
        ({"type": "number", "maximum": 1.5}, 2, 1.5, "it must be a number, at most 1.5."),
        ({"type": "boolean"}, "yes", False, "it must be true or false."),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a", ["b", "a"], "it must be a list."),
        ({"type": "array", "items": {"enum": ["a"]}}, ["c"], [], "it must be a list whose values are one of a."),
        ({"type": "array", "maxItems": 1}, ["a", "b"], ["a"], "it must be a list of at most 1 values."),
        ({"title": "no type"}, {"nested": 1}, "x", "it must be a text."),
        (True, {"nested": 1}, "x", "it must be a text."),
    ],
)
async def test_an_answer_that_does_not_fit_the_form_is_asked_again(
    field: Any, wrong: Any, right: Any, error: str
) -> None:
    page = Page(accept(it=wrong), accept(it=right))
    assert await page.result(form(it=field)) == accept(it=right)
    first, second = page.questions
    assert second == {**first, "error": error}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (accept(), "it is missing."),
        (accept(it="x", more="y"), "more was not asked for."),
        ({"action": "accept", "content": ["x"]}, "The content of an answer is an object with a value for each field."),
        ("x", 'An answer is {"action": "accept", "content": {…}}, {"action": "decline"} or {"action": "cancel"}.'),
        ({"action": "ok"}, 'An answer is {"action": "accept", "content": {…}}, {"action": "decline"} or'
         ' {"action": "cancel"}.'),
    ],
)  # fmt: skip
async def test_so_is_an_answer_of_another_shape(wrong: Any, error: str) -> None:
    page = Page(wrong, DECLINE)
    assert await page.result(form(it={"type": "string"})) == DECLINE
    assert page.questions[1]["error"] == error


async def test_a_page_that_never_gives_a_fitting_answer_is_asked_three_times() -> None:
    page = Page("x", "x", "x")
    assert await page.result(form(it={"type": "string"})) == {"action": "cancel"}
    assert len(page.questions) == 3


async def test_a_url_is_shown_with_its_message_and_the_answer_has_no_content() -> None:
    page = Page(accept(card="4711"))
    elicitation = {"mode": "url", "message": "Pay.", "url": "https://bank.example", "elicitationId": "e1", "_meta": {}}
    assert await page.result(elicitation) == {"action": "accept"}
    del elicitation["_meta"]
    assert page.questions == [elicitation]


def params(**more: Any) -> ElicitRequestFormParams:
    return ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}}, **more)


async def test_outside_of_a_turn_the_server_gets_an_error() -> None:
    assert isinstance(await elicit(None, params()), ErrorData)


@pytest.mark.parametrize(
    ("elicitation", "error"),
    [
        ({"mode": "url", "url": "javascript:alert(1)"}, "must begin with https: or http:"),
        ({"mode": "url", "url": "http://["}, "must begin with https: or http:"),
        (
            form(it={"type": "integer", "minimum": "x"}),
            "Expected `float | null`, got `str` - at `$.properties[...].minimum`",
        ),
        (form(it="string"), "Expected `bool | object`, got `str` - at `$.properties[...]`"),
        ({"requestedSchema": {"properties": []}}, "Expected `object | null`, got `array` - at `$.properties`"),
    ],
)
async def test_a_question_that_cannot_be_shown_is_an_error_for_the_server(elicitation: Any, error: str) -> None:
    page = Page()
    with pytest.raises(RemoteProtocolError, match=re.escape(error)):
        await page.result(elicitation)
    results: list[Any] = []

    class Params:
        def model_dump(self, **_options: Any) -> Any:
            return elicitation

    async def agent(_turn: Turn) -> None:
        results.append(await elicit(None, Params()))

    with AgentClient(agent) as client:
        assert client.ask("Hi.").tools == []
    assert isinstance(results[0], ErrorData)


def test_an_answer_that_mcp_cannot_carry_is_an_error_for_the_server() -> None:
    results: list[Any] = []
    schema = {"type": "object", "properties": {"it": {"const": {"nested": 1}}}}

    async def agent(_turn: Turn) -> None:
        results.append(await elicit(None, ElicitRequestFormParams(message="Who?", requested_schema=schema)))

    with AgentClient(agent, tools={"interrupt": accept(it={"nested": 1})}) as client:
        client.ask("Hi.").assert_legal()
    assert isinstance(results[0], ErrorData)


def test_clients_may_add_arguments_of_their_own() -> None:
    results: list[Any] = []

    async def agent(_turn: Turn) -> None:
        results.append(await elicit(None, params(), {"server_name": "restaurant"}))

    with AgentClient(agent, tools={"interrupt": accept()}) as client:
        client.ask("Hi.").assert_legal()
    assert results == [ElicitResult(action="accept", content={})]


# A real server, over stdio.


Call = tuple[str, dict[str, Any]]


async def _called(mode: Any, *rounds: list[Call]) -> list[str]:
    """Return what a server answers to the calls of each round, which are made at the same time."""
    results = []
    async with Client(SERVER, elicitation_callback=elicit, mode=mode) as client:
        for calls in rounds:
            results += await asyncio.gather(*(client.call_tool(name, arguments) for name, arguments in calls))
    contents: list[Any] = [result.content[0] for result in results]
    return [content.text for content in contents]


def served(page: Page, mode: Literal["auto", "legacy"], *rounds: list[Call]) -> list[str]:
    async def agent(_turn: Turn) -> str:
        return "\n".join(await _called(mode, *rounds))

    with AgentClient(agent, tools={"interrupt": page.answer}) as client:
        return client.ask("Hi.").text.split("\n")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_tool_of_a_real_server_asks_the_page(mode: Any) -> None:
    page = Page(accept(guests=2, terrace=True), accept(guests=9), accept(guests=8), DECLINE, {"action": "cancel"})
    days = ["Friday", "Saturday", "Sunday", "Monday"]
    assert served(page, mode, *([("book", {"day": day})] for day in days)) == [
        "2 people on Friday, on the terrace.",
        "8 people on Saturday, inside.",
        "Nothing is booked on Sunday (decline).",
        "Nothing is booked on Monday (cancel).",
    ]
    assert [(question["message"], question.get("error")) for question in page.questions] == [
        ("Which table on Friday?", None),
        ("Which table on Saturday?", None),
        ("Which table on Saturday?", "guests must be a whole number, at most 8."),
        ("Which table on Sunday?", None),
        ("Which table on Monday?", None),
    ]
    assert page.questions[0]["requestedSchema"]["properties"]["guests"]["maximum"] == 8


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_two_tools_ask_at_the_same_time(mode: Any) -> None:
    page = Page(accept(guests=1), accept(guests=2))
    booked = served(page, mode, [("book", {"day": "Friday"}), ("book", {"day": "Sunday"})])
    guests = {question["message"]: at for at, question in enumerate(page.questions, 1)}
    assert booked == [
        f"{guests['Which table on Friday?']} people on Friday, inside.",
        f"{guests['Which table on Sunday?']} people on Sunday, inside.",
    ]


def test_a_tool_that_sends_the_user_to_a_web_page_hears_whether_they_went() -> None:
    page = Page({"action": "accept"})
    assert served(page, "legacy", [("pay", {})]) == ["The payment: accept."]
    assert page.questions == [
        {
            "mode": "url",
            "message": "Please pay the deposit.",
            "url": "https://bank.example/pay/42",
            "elicitationId": "payment-42",
        }
    ]


def test_the_example_books_a_table() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "mcp" / "agent.py"))
    with AgentClient(example["agent"], tools={"interrupt": accept(guests=4)}) as client:
        answer = client.ask("Monday")
    assert answer.text == "4 people on Monday, inside."
    assert [tool.output for tool in answer.tools if tool.name == "book"] == [answer.text]

"""TypeScript types of what an agent says. `tests/conformance/test_typescript.py` compiles them."""

import dataclasses
import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent

from usechat.cli import main
from usechat.errors import InvalidSetting
from usechat.typescript import ChatTypes, ToolTypes, chat_types, types_of, typescript

pytestmark = pytest.mark.quick


class Tree(msgspec.Struct):
    name: str
    children: "list[Tree]" = []


class Sky(enum.Enum):
    CLEAR = "clear"
    GREY = "grey"


class Weather(BaseModel):
    celsius: float
    sky: Sky = Sky.CLEAR
    wind: tuple[int, str] | None = None


@dataclasses.dataclass
class Progress:
    percent: int
    note: str | None = None


class Usage(msgspec.Struct, rename="camel"):
    input_tokens: int
    by_model: dict[str, int]


def type_of(described: Any) -> str:
    """Return the TypeScript of the input of a tool."""
    text = typescript(ChatTypes(tools={"t": ToolTypes(described)}))
    return text.partition("  t: { input: ")[2].partition("; output: unknown };")[0]


@pytest.mark.parametrize(
    ("described", "text"),
    [
        (None, "unknown"),
        ({}, "unknown"),
        (str, "string"),
        (int, "number"),
        (bool, "boolean"),
        (list[str], "Array<string>"),
        (dict[str, int], "Record<string, number>"),
        (dict[str, Any], "Record<string, unknown>"),
        (Literal["a", "b"], '"a" | "b"'),
        (int | None, "number | null"),
        (Sky, "Sky"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"const": 5}, "5"),
        ({"type": "array"}, "Array<unknown>"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}]}, "[string, null]"),
        ({"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "integer"}]}, "string | number"),
        ({"allOf": [{"type": "string"}, {"enum": ["a", "b"]}]}, 'string & ("a" | "b")'),
        ({"type": "object", "properties": {"a-b": {"type": "string"}}}, '{ "a-b"?: string }'),
        ({"properties": {"a": False}, "required": ["a"]}, "{ a: never }"),
        ({"type": "object"}, "Record<string, unknown>"),
        ({"type": "object", "additionalProperties": False}, "Record<string, never>"),
        (
            {"type": "object", "properties": {"a": True}, "additionalProperties": {"type": "string"}},
            "{ a?: unknown } & Record<string, unknown>",
        ),
        ({"$ref": "#/$defs/none"}, "None"),
    ],
)
def test_a_type_becomes_typescript(described: Any, text: str) -> None:
    assert type_of(described) == text


def test_what_is_sent_has_all_its_fields_and_what_a_model_writes_may_lack_some() -> None:
    text = typescript(ChatTypes(tools={"t": ToolTypes(Weather, Weather)}, data={"progress": Progress}))
    assert "  t: { input: { celsius: number; sky?: Sky; wind?: [number, string] | null };" in text
    assert "output: { celsius: number; sky: Sky; wind: [number, string] | null } };" in text
    assert "export type Progress = { percent: number; note: string | null };" in text


def test_pydantic_models_may_be_fields_of_dataclasses_and_structs_and_items_of_lists() -> None:
    class Stop(BaseModel):
        place_name: str = Field(alias="placeName")
        weather: Weather
        next: "Stop | None" = None

    @dataclasses.dataclass
    class Trip:
        first: Stop
        latest: Weather | None = None

    class Report(msgspec.Struct, rename="camel"):
        all_weather: dict[str, Weather]

    tools = {"plan": ToolTypes(Trip, list[Weather])}
    text = typescript(ChatTypes(tools=tools, data={"trip": Trip, "report": Report}))
    before, after = "celsius: number; sky?: Sky; wind?: [number, string] | null", "celsius: number; sky: Sky; wind: "
    assert f"export type Trip = {{ first: Stop; latest?: {{ {before} }} | null }};" in text
    assert f"export type Weather = {{ {before} }};" in text
    assert "export type Stop = { placeName: string; weather: Weather; next?: Stop | null };" in text
    assert "export type Stop2 = { placeName: string; weather: Weather2; next: Stop2 | null };" in text
    assert f"plan: {{ input: Trip; output: Array<{{ {after}[number, string] | null }}> }};" in text
    assert f"export type Report = {{ allWeather: Record<string, {{ {after}[number, string] | null }}> }};" in text
    assert "  trip: Trip2;\n  report: Report;\n" in text


def test_types_that_refer_to_themselves_have_a_name() -> None:
    text = typescript(ChatTypes(data={"tree": Tree}))
    assert "export type Tree = { name: string; children: Array<Tree> };" in text
    assert "  tree: Tree;" in text


def test_two_types_of_one_name_stay_apart() -> None:
    def refers(kind: str) -> dict[str, Any]:
        return {"$ref": "#/$defs/City", "$defs": {"City": {"type": kind}}}

    text = typescript(
        ChatTypes(tools={"a": ToolTypes(refers("string"), refers("number")), "b": ToolTypes(refers("string"))})
    )
    assert "export type City = string;\n\nexport type City2 = number;" in text
    assert "a: { input: City; output: City2 };" in text
    assert "b: { input: City; output: unknown };" in text


def test_a_type_that_cannot_be_described_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"^data-x cannot be described: "):
        typescript(ChatTypes(data={"x": object()}))
    with pytest.raises(InvalidSetting, match=r"^data-x cannot be described: neither msgspec nor pydantic knows <class"):
        typescript(ChatTypes(data={"x": list[Path]}))


def weather_agent() -> Any:
    agent = Agent("test")

    @agent.tool_plain
    def weather(city: Annotated[str, Field(description="where")], days: int = 1) -> Weather:
        raise NotImplementedError

    return chat_types(tools={"locate": ToolTypes(None, Usage)}, data=[Progress, Tree], metadata=Usage)(agent)


def test_the_tools_of_an_agent_are_found_and_what_is_registered_is_added() -> None:
    types = types_of(weather_agent())
    assert list(types.tools) == ["weather", "locate"]
    assert (list(types.data), types.metadata) == (["progress", "tree"], Usage)
    text = typescript(types)
    assert "weather: { input: { city: string; days?: number }; output: " in text
    assert types_of(print) == ChatTypes()


SENT_METADATA = """\
export type SentMetadata = {
  finishReason?: string;
  usage?: { inputTokens?: number; outputTokens?: number; totalTokens?: number } & Record<string, unknown>;
  usechat?: { pending: Array<string>; signature?: string; approvals?: Record<string, string> };
};
"""


def test_the_metadata_that_usechat_sends_is_there_besides_that_of_the_agent() -> None:
    text = typescript(ChatTypes())
    assert SENT_METADATA in text
    assert "export type ChatMetadata = SentMetadata;\n" in text
    text = typescript(ChatTypes(metadata={"type": "object", "properties": {"model": {"type": "string"}}}))
    assert "export type AgentMetadata = { model?: string };\n" in text
    assert "export type ChatMetadata = Omit<SentMetadata, keyof AgentMetadata> & AgentMetadata;\n" in text


def reserved_types() -> ChatTypes:
    """Return types whose names the file itself uses."""
    names = [
        "AgentMetadata",
        "Array",
        "ChatData",
        "ChatMessage",
        "ChatTools",
        "Omit",
        "Record",
        "SentMetadata",
        "UIMessage",
    ]
    data = {name: msgspec.defstruct(name, [("items", list[int]), ("counts", dict[str, int])]) for name in names}
    return ChatTypes(data=data, metadata=msgspec.defstruct("ChatMetadata", [("tokens", int)]))


def test_types_may_have_the_names_that_the_file_itself_uses() -> None:
    text = typescript(reserved_types())
    assert "export type ChatMetadata2 = { tokens: number };" in text
    assert "export type AgentMetadata = ChatMetadata2;" in text
    assert "  Record: Record2;\n" in text
    assert "export type Array2 = { items: Array<number>; counts: Record<string, number> };" in text


MODULE = """
import contextlib
import dataclasses
from usechat.typescript import chat_types

@dataclasses.dataclass
class Progress:
    percent: int

@chat_types(data=[Progress])
def agent(turn):
    turn.emit(Progress(50))

def untyped(turn):
    return "Hi"

def make_agent():
    return agent

async def make_later():
    return agent

@contextlib.asynccontextmanager
async def make_context():
    yield agent

def fail():
    raise LookupError("no key")
"""


def test_the_command_writes_a_file_and_tells_whether_it_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "typed_app.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["types", "typed_app:agent", "-o", "chat.ts"]) == 0
    assert main(["types", "typed_app:agent"]) == 0
    text = Path("chat.ts").read_text()
    assert text == capsys.readouterr().out
    assert text.startswith("// Written by `usechat types typed_app:agent`; run it again instead of editing")
    assert "export type ChatData = {\n  progress: Progress;\n};" in text
    assert main(["types", "typed_app:agent", "-o", "chat.ts", "--check"]) == 0
    Path("chat.ts").write_text("old")
    assert main(["types", "typed_app:agent", "-o", "chat.ts", "--check"]) == 1
    assert capsys.readouterr().err == "usechat types: chat.ts is not up to date\n"
    assert main(["types", "typed_app:agent", "--check"]) == 2
    assert capsys.readouterr() == ("", "usechat: --check compares a file with the types; name the file with -o\n")
    assert main(["types", "typed_app:untyped"]) == 2
    assert "typed_app:untyped has no types; register them with" in capsys.readouterr().err
    assert main(["types", "typed_app:fail"]) == 2
    assert "typed_app:fail made no agent: LookupError: no key (typed_app.py, line 28)\n" in capsys.readouterr().err
    for factory in ("make_agent", "make_later", "make_context"):
        assert main(["types", f"typed_app:{factory}"]) == 0
        assert "export type ChatData = {\n  progress: Progress;\n};" in capsys.readouterr().out
    assert main(["types", "http://localhost:8000/api/chat"]) == 2
    assert "'http://localhost:8000/api/chat' is an address; types come from the agent's code" in capsys.readouterr().err
    assert main(["types", "typed_app:agent", "-o", "none/chat.ts"]) == 2
    assert "none/chat.ts cannot be used: No such file or directory" in capsys.readouterr().err

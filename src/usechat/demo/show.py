"""The show: scenes of what a chat can do, each a few lines of Python, which it shows at its end.

A scene is a plain agent function. :class:`Show` plays it at the speed of a model, and adds its source and the way to
the next scene.
"""

import asyncio
import base64
import contextlib
import inspect
import itertools
import os
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from usechat import Turn, current_turn
from usechat.demo.survival import is_restarted, kill_server, pack
from usechat.errors import UnknownOutcome
from usechat.ids import new_id
from usechat.open_harness import FlowRuntime, OpenHarnessChatTransport, default_registry, load_flow
from usechat.parts import (
    ApprovalRequest,
    Data,
    File,
    Part,
    Reasoning,
    SourceUrl,
    Text,
    ToolCall,
    ToolDenied,
    ToolResult,
)
from usechat.transports import FunctionSource, TurnContext
from usechat.ui_messages import tool_name, tool_parts_of

__all__ = ["PACE", "SCENES", "Scene", "Show", "drinks", "menu", "snacks"]

PACE: Final = 0.05
"""Seconds per word."""

Said = AsyncIterator[str | Part]


# The weekend: reasoning, two tools at once, an approval, a chart, sources, a reload, and the end of the server.


async def get_weather(city: str) -> Any:
    await asyncio.sleep(1.2)
    return {"city": city, "saturday": "21 °C, sun", "sunday": "19 °C, clouds"}


async def find_trains(city: str) -> Any:
    await asyncio.sleep(0.6)
    return [{"to": city, "leaves": "8:30", "free_seats": 14}, {"to": city, "leaves": "11:05", "free_seats": 0}]


async def book_seats(train: str) -> Any:
    await asyncio.sleep(0.8)
    return {"train": train, "seats": "61, 63", "reference": "LX-2041"}


async def _weekend(_turn: Turn) -> Said:
    yield Reasoning("The weather decides what to do, and the train when. I can ask for both at once.")
    weather, trains, booking = new_id(), new_id(), new_id()
    yield ToolCall(weather, "get_weather", {"city": "Lisbon"})
    yield ToolCall(trains, "find_trains", {"city": "Lisbon"})
    results = await asyncio.gather(get_weather("Lisbon"), find_trains("Lisbon"))
    for call_id, result in zip((weather, trains), results, strict=True):
        yield ToolResult(call_id, result)
    yield "Saturday is the sunny day, and the train at 8:30 has seats. I would book two."
    yield ToolCall(booking, "book_seats", {"train": "8:30", "seats": 2, "price": "49 €"})
    yield ApprovalRequest(booking, booking)


async def _weekend_after_booking(turn: Turn) -> Said:
    [answer] = turn.approvals
    if answer.approved:
        yield ToolResult(answer.approval_id, await book_seats("8:30"))
    else:
        yield ToolDenied(answer.approval_id)
    yield Data("forecast", {"title": "Lisbon, °C", **forecast})
    for name, title in {"Lisbon": "The town", "Tram_28": "Tram 28"}.items():
        yield SourceUrl(name, f"https://en.wikipedia.org/wiki/{name}", title)
    yield "Two seats are booked. " if answer.approved else "Then you take the car. "
    yield "Now **reload the page**: this answer goes on while I plan your Saturday.\n\n"
    for hour, plan in saturday.items():
        yield f"- **{hour}** {plan}\n"
    if is_restarted():
        kill = new_id()
        yield "\nShall I **kill the server**, too, while I pack? This answer goes on even then."
        yield ToolCall(kill, "kill_the_server", {"signal": "kill -9"})
        yield ApprovalRequest(kill, kill)


async def _weekend_after_kill(turn: Turn) -> Said:
    [answer] = turn.approvals
    if not answer.approved:
        yield ToolDenied(answer.approval_id)
        yield "Then it lives, and nothing is packed."
        return
    for thing in ("Passports", "Sunglasses", "A book"):
        yield f"- {await turn.step('pack', pack, thing)}\n"  # stored: not called again
    yield f"- Now `kill -9 {await turn.step('victim', os.getpid)}`, in the middle of "
    with contextlib.suppress(UnknownOutcome):  # the process died in this step
        await turn.step("kill", kill_server)
    yield f"this sentence, and process {os.getpid()} ends it.\n"
    yield f"- {await turn.step('pack', pack, 'The tickets')}\n"
    yield ToolResult(answer.approval_id, f"Process {os.getpid()} has taken over")
    yield "Nothing was packed twice: what the first process did [is stored](docs/survive.md#answers-that-survive)."


forecast: Final = {
    "kind": "bar",
    "labels": ["8:00", "11:00", "14:00", "17:00", "20:00"],
    "series": {"Saturday": [14, 18, 21, 20, 17], "Sunday": [13, 16, 19, 18, 15]},
}
saturday: Final = {
    "9:00": "Coffee and a pastel de nata at the station, because the train had neither of them.",
    "10:00": "Tram 28 up to the castle. Get on where it starts, or stand all the way.",
    "11:30": "The castle itself: the walls, the peacocks, and the best view of the river.",
    "13:00": "Lunch in Alfama, wherever the menu is written by hand and nobody calls you in.",
    "15:00": "The ferry to Cacilhas and back, which costs little and shows the whole town.",
    "16:30": "Belém by train: the tower, the monastery, and one more pastel de nata to compare.",
    "18:30": "A bench at Miradouro da Graça, when the light is low and the roofs are orange.",
    "20:00": "Grilled sardines, green wine, and a table outside: it is still seventeen degrees.",
    "22:00": "Fado in a small room, with the lights off and the telephones away.",
    "23:30": "Back to the hotel, on foot and downhill, which in Lisbon you have to earn first.",
}
"""Long enough to reload the page meanwhile."""


# Several agents, a flow, a form, files, versions.


scout: Final = "I look at maps. The old town is steep: do the castle first, while your legs are fresh."
cook: Final = "I look at menus. Sardines are in season, so dinner is easy, and lunch is something small."


async def _team(_turn: Turn) -> Said:
    for name, text in {"Scout": scout, "Cook": cook}.items():
        yield Data("agent", {"name": name})  # who speaks from here on
        yield Text(text[0], lane=name)
    for one, other in itertools.zip_longest(scout[1:], cook[1:], fillvalue=""):
        yield Text(one, lane="Scout")  # both write at once
        yield Text(other, lane="Cook")


async def snacks(_fields: Mapping[str, Any]) -> Said:
    """Think of snacks."""
    async for item in _at_pace("For snacks I suggest olives, bread and cheese.", PACE):
        yield item


async def drinks(_fields: Mapping[str, Any]) -> Said:
    """Think of drinks, at the same time."""
    async for item in _at_pace("For drinks I suggest water, lemonade and green tea.", PACE):
        yield item


async def menu(_fields: Mapping[str, Any]) -> Said:
    """Bring both together, and end the scene."""
    text = "Two nodes worked side by side, and this one waited for both. The panel *Flow* shows it."
    async for item in _at_pace(text, PACE):
        yield item
    code, following = _ending(current_turn().text)
    yield code
    current_turn().send(following)


async def _form(_turn: Turn) -> Said:
    yield "I can plan the next trip, too."
    who = {"title": "Who travels?", "enum": ["I alone", "Two of us", "A family"]}
    days = {"title": "How many days?", "type": "integer", "minimum": 1, "maximum": 14, "default": 3}
    sea = {"title": "It must be by the sea", "type": "boolean"}
    schema = {"properties": {"who": who, "days": days, "sea": sea}, "required": ["who", "days"]}
    yield ToolCall(new_id(), "interrupt", {"message": "What kind of trip?", "requestedSchema": schema})


async def _form_after_answer(turn: Turn) -> Said:
    answer = turn.tool_outputs[-1].output
    place = "Cascais" if answer.get("sea") else "Sintra"
    yield f"For {answer.get('who', 'you').lower()}, {answer.get('days')} days: **{place}**."


async def _files(_turn: Turn) -> Said:
    yield "I draw a sunset, and write down what we need. Click the image to enlarge it."
    yield File(inline("image/png", sunset(320, 160)), "image/png")
    yield File(inline("text/csv", b"what,seats\ntrain,2\nboat,2\n"), "text/csv")


ideas: Final = itertools.cycle(("a tile museum", "a surf lesson", "a day at the aquarium", "a walk along the cliffs"))


async def _versions(_turn: Turn) -> Said:
    yield f"For Sunday I suggest **{next(ideas)}**.\n\n"
    yield "Press *Regenerate* below for another idea: the arrows then lead from one to the other. "
    yield "Or edit your message: the chat branches there, and keeps both branches."


class Scene(NamedTuple):
    """A scene: its name on the page, what plays it, and the section of the documentation that says more.

    ``after`` plays on when the visitor has answered the call of a tool, by the tool; without ``play`` it is the flow.
    ``code`` follows their source.
    """

    name: str
    section: str
    play: Callable[[Turn], Said] | None = None
    after: Mapping[str, Callable[[Turn], Said]] = MappingProxyType({})
    code: str = ""


_FLOW: Final = """\
from usechat.open_harness import FlowRuntimes, OpenHarnessChatTransport, load_flow

agent = OpenHarnessChatTransport(FlowRuntimes(load_flow('''
name: party-planner
version: 1
nodes:
  - {id: snacks, type: agent, input: {model: openai:gpt-5-mini, prompt: Suggest snacks}}
  - {id: drinks, type: agent, input: {model: openai:gpt-5-mini, prompt: Suggest drinks}}
  - {id: menu, type: agent, input: {model: openai:gpt-5-mini, prompt: "{{ snacks.text }} {{ drinks.text }}"}}
edges:
  - {from: snacks, to: menu, gate: all}
  - {from: drinks, to: menu, gate: all}
''')))
"""
_STORED: Final = """\


app = ChatApp(agent, chats=SqlChats("chats.db"))  # or: usechat serve my_app:agent --chats chats.db
"""

SCENES: Final[Mapping[str, Scene]] = {
    "Plan my weekend in Lisbon": Scene(
        "A weekend",
        "tools.md#approvals",
        _weekend,
        {"book_seats": _weekend_after_booking, "kill_the_server": _weekend_after_kill},
    ),
    "Let two agents work at once": Scene("Several agents", "parts.md#parts-what-an-agent-can-send", _team),
    "Plan a party with a flow": Scene("A flow", "open-harness.md", code=_FLOW),
    "Ask me with a form": Scene("A form", "tools.md#an-mcp-server-asks", _form, {"interrupt": _form_after_answer}),
    "Make me an image and a table": Scene("Files", "files.md#what-the-agent-makes", _files),
    "Suggest something for Sunday": Scene("Versions of an answer", "chats.md", _versions, code=_STORED),
}
"""The scenes in their order, by the message that plays each."""
_QUESTIONS: Final = ("How does a page resume after a reload?", "How do I store chats in a database?")


class Show:
    """A source that plays the scenes; ``pace`` is in seconds per word."""

    def __init__(self, pace: float = PACE) -> None:
        text = (files("usechat") / "demo" / "party.yaml").read_text(encoding="utf-8")
        registry = default_registry()
        flow = load_flow(text, registry=registry)
        self._flow = OpenHarnessChatTransport(partial(FlowRuntime, flow, registry=registry), send_flow_metadata=True)
        self._pace = pace

    def plays(self, turn: Turn) -> bool:
        """Whether the message of a turn is that of a scene."""
        return turn.text in SCENES

    async def drive(self, context: TurnContext) -> None:
        """Play the scene of a turn."""
        scene = SCENES[context.turn.text]
        source = FunctionSource(partial(self._play, scene)) if scene.play else self._flow
        await source.drive(context)

    async def _play(self, scene: Scene, turn: Turn) -> Said:
        play = scene.after.get(_answered_tool(turn), scene.play)
        assert play is not None, "the flow is driven"
        item: str | Part = ""
        async for item in play(turn):
            async for piece in _at_pace(item, self._pace):
                yield piece
        if not isinstance(item, (ApprovalRequest, ToolCall)):  # otherwise it waits for the visitor
            for part in _ending(turn.text):
                yield part


def _answered_tool(turn: Turn) -> str:
    """Return the tool whose call the visitor has answered last; empty if none in this turn."""
    answered = {each.tool_call_id for each in turn.approvals} | {each.tool_call_id for each in turn.tool_outputs}
    calls = [part for message in turn.messages for part in tool_parts_of(message)]
    return next((tool_name(call) for call in reversed(calls) if call["toolCallId"] in answered), "")


async def _at_pace(item: str | Part, pace: float) -> Said:
    """Yield texts word by word, at a pace."""
    if not isinstance(item, (str, Reasoning)):
        yield item
        await asyncio.sleep(pace / 6 if isinstance(item, Text) else 0)
        return
    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", item if isinstance(item, str) else item.text):
        yield word if isinstance(item, str) else Reasoning(word)
        await asyncio.sleep(pace)


def _ending(message: str) -> tuple[str, Data]:
    """Return what follows a scene: the Python behind it, and the way on."""
    scene = SCENES[message]
    functions = [function for function in (scene.play, *scene.after.values()) if function is not None]
    code = "\n\n".join(map(_shown, functions)) + scene.code
    text = f"\n\nThe Python behind it ([documentation](docs/{scene.section})):\n\n```python\n{code.rstrip()}\n```"
    messages = list(SCENES)
    following = messages[messages.index(message) + 1 :][:1]
    ways = [f"Next: {SCENES[each].name} | {each}" for each in following]
    return text, Data("suggestions", ways or list(_QUESTIONS))


def _shown(function: Callable[..., Any]) -> str:
    """Return the source of a scene as one would write it."""
    _, _, suffix = function.__name__.partition("_after_")
    name = f"agent_after_{suffix}" if suffix else "agent"
    return re.sub(r"^async def \w+\(_?turn: Turn\) -> Said:", f"async def {name}(turn):", inspect.getsource(function))


def inline(media_type: str, content: bytes) -> str:
    """Return the address of a file that holds the file."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def sunset(width: int, height: int) -> bytes:
    """Return a PNG with colours that run into each other."""
    rows = b""
    for y in range(height):
        down = y / height
        rows += b"\0" + bytes((int(255 - 90 * down), int(150 - 110 * down), int(60 + 90 * down))) * width
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )

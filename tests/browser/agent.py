"""The agent behind the page under test: what it does is what the message asks for, at a gate if it says `held`."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from tests.browser.markdown_texts import DEEP, END, ODD, mixed
from tests.conformance.served import Gates
from usechat import Data, File, Reasoning, SourceUrl, Step, Text, ToolCall, ToolError, ToolResult, Turn
from usechat.errors import PublicError
from usechat.parts import ApprovalRequest, Metadata, Part, ToolDenied

PICTURE: Final = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="
MARKDOWN: Final = """# A title

Some **bold** words and `code`. It costs $5 here and $6 there.

| left | right |
|---|---|
| 1 | 2 |

```python
def double(number):
    return 2 * number
```
"""
EVIL: Final = """<script>window.hacked=1</script><img src=x onerror="window.hacked=1"><b onclick="window.hacked=1">b</b>

[a link](javascript:window.hacked=1) <a href="javascript:window.hacked=1">another</a>
[data](data:text/html,<script>window.hacked=1</script>) ![picture](https://example.org/spy.png)

<iframe src="javascript:window.hacked=1"></iframe><svg onload="window.hacked=1"></svg><style>* {display: none}</style>

All is well.
"""
LONG_CODE: Final = (
    "```python\n"
    + "".join(
        f"def function_{number}(first, second):\n    return first * {number} + second\n\n" for number in range(30)
    )
    + "wide = ["
    + ", ".join(map(str, range(200)))
    + "]\n```\n"
)
GRAMMARS: Final = """```tsx
const Page = ({ name }: Props) => <Title text="Hello">{name}</Title>;
```

```jsx
const page = <Title text="Hello" />;
```

```cpp
#define TWICE(x) return "two" + 2 * (x) {
int double_of(int number) { return 2; }
```
"""
WIDE_TABLE: Final = (
    "| "
    + " | ".join(f"Considerable-{number}" for number in range(9))
    + " |\n"
    + "|---" * 9
    + "|\n"
    + ("| " + " | ".join("unbreakableword" for _ in range(9)) + " |\n")
)
WORDY_TABLE: Final = """| Model | Weight | Price | Switches | Remark |
|---|---|---|---|---|
| Alpha | 640 g | 89 euros | brown | light, quiet, small enough for a bag |
"""
DIAGRAM: Final = """```mermaid
graph TD
  A[Start] --> B{Fine?}
  B -->|yes| C[Done]
  B -->|no| A
```

```mermaid
no such diagram
```
"""
FLOWCHARTS: Final = """```mermaid
graph TD; A-->B; B-- maybe -->C[Sea; sky];
```

```mermaid
flowchart TD
  A[Start] --> B{Fine?}
  B -->|yes| C[Done]
  B -->|no| A
```

```mermaid
graph TD
  A[
```
"""
DRAWN_DIAGRAMS: Final = (
    "sequenceDiagram\n  participant A as Ada\n  A->>+Bob: Hello Bob\n  alt fine\n    Bob-->>-A: Fine\n  else tired\n"
    "    Bob-->>A: Tired\n  end\n  Note over A,Bob: They talk",
    'stateDiagram-v2\n  state "It stands" as Still\n  [*] --> Still\n  Still --> [*] : off',
    "classDiagram\n  class Animal {\n    +String name\n    +eat(food) bool\n  }\n  Animal <|-- Dog : is a",
    "erDiagram\n  CUSTOMER }o--|| ORDER : places\n  ORDER {\n    int number PK\n  }",
    'xychart-beta\n  title "Sales"\n  x-axis [jan, feb]\n  y-axis "Revenue" 0 --> 10\n  bar [5, 7]',
)
"""Diagrams that the page draws, with everything in them."""
SOURCE_DIAGRAMS: Final = (
    "sequenceDiagram\n  autonumber\n  A->>B: Hello",
    "sequenceDiagram\n  A->>B: Hello\n  activate B",
    "sequenceDiagram\n  loop daily\n  A->>B: Hello",
    "sequenceDiagram\n  Web Server->>B: Hello",
    "stateDiagram-v2\n  [*] --> Still\n  Still : It stands",
    "stateDiagram-v2\n  [*] --> A\n  note right of A : A note",
    "stateDiagram-v2\n  state fork <<fork>>\n  [*] --> fork",
    'classDiagram\n  A --> B\n  note for A "A note"',
    "classDiagram\n  class A {\n    +name: String\n  }",
    'erDiagram\n  A {\n    int id PK "the id"\n  }',
    "erDiagram\n  A ||--o{ B",
    "xychart-beta\n  title Sales\n  bar [5, 7]",
    'pie\n  "Dogs" : 3',
)
"""Diagrams of which the page would lose a line."""
SECTION: Final = """

## Section NUMBER

Some **bold** words about item NUMBER, with `code_NUMBER` and a [link](https://example.org/NUMBER). The paragraph
goes on for a while, as an answer of a model does. It ends with a sum in words: two times NUMBER is what is wanted here.

- the first point about NUMBER, which has a *few* words of its own
- the second point about NUMBER, which is shorter

```python
def function_NUMBER(first: int, second: int) -> dict[str, int]:
    # Both of them are wanted, so that the caller can choose.
    total = first + second * NUMBER
    return {"sum": total, "product": first * second}
```

| name | value | remark |
|---|---|---|
| first | NUMBER | one of the rows |
| second | NUMBER | another row |
"""
DOCUMENT: Final = (
    "Many **points** follow.\n\n"
    + "".join(f"{number}. The point {number}.\n\n     It has two paragraphs.\n\n" for number in range(1, 101))
    + "The code:\n\n```python\n"
    + "".join(f"def function_{number}():\n    return {number}\n\n\n" for number in range(100))
    + "```\n\nThe formula:\n\n$$\na\n\nb\n$$\n\n"
    + "".join(f"Paragraph {number} of the end.\n\n" for number in range(200))
)
"""A list, code and paragraphs, each longer than a piece that the page draws at once."""
BLOCKS: Final = (
    "<details>\n\nOpened and closed.\n\n</details>\n\n"
    + "".join(f"{number}. The point {number}, with *some* words and `code`.\n" for number in range(1, 901))
    + "\nThe table:\n\n| name | number | remark |\n|---|---|---|\n"
    + "".join(f"| row {number} | {number} | about **{number}** |\n" for number in range(1, 1001))
    + "\n"
    + " ".join(f"The sentence {number} has *some* words, and `code`." for number in range(1, 701))
)
"""100 kB of few blocks, each of which is far longer than a piece that the page draws at once."""
TASKS: Final = "- [x] bought milk\n- [ ] wrote the letter\n"
DOLLARS: Final = r"""Let $x$ be small and $a_1 + b^2 = \frac{1}{2}$.

It costs $5 here and $6 there, or $7-$8, and $HOME is set.

Say $user_name$ or $API_KEY=abc$, pay $10 (tip = 2) and 5$ more, or $5 < price <= 20$, then kill $$ and echo $$.

Then $x_{max} < \text{the limit}$ and $$ E = mc^2 $$ hold.

`$y$` stays.
"""
TITLES: Final[Mapping[str, Any]] = {
    "title": "Sold tickets",
    "series": {"adults": [3, 4], "children": [1, 2], "dogs": [0, 1]},
    "kind": "bar",
}
FORMULAS: Final = r"""Inline \(a^2 + b^2\) and a display:

\[ \frac{1}{2} \]

$$alone$$

Code: `\(raw\)` $$beside$$
"""


Said = AsyncIterator[str | Part]
GATES: Final = Gates()
"""Where an answer waits, so that a test is in its middle for as long as it needs."""


def open_gates(chat_id: str) -> None:
    """Let the held answer of a chat go on to its end."""
    for gate in ("", "end"):
        GATES.open(chat_id, gate)


async def _held(turn: Turn, gate: str = "") -> None:
    if "held" in turn.text:
        await GATES.passed(turn, gate)


async def answer(turn: Turn) -> Said:
    """Do what the first word of the message says."""
    words = turn.text.lower().split()
    behaviour = _approved if turn.approvals else BEHAVIOURS.get(words[0] if words else "files", _echo)
    async for part in behaviour(turn):
        yield part


async def _echo(turn: Turn) -> Said:
    yield f"You said: {turn.text}"


async def _markdown(_turn: Turn) -> Said:
    for line in MARKDOWN.splitlines(keepends=True):
        yield line


FORM: Final = {
    "mode": "form",
    "message": "Which table?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "guests": {"type": "integer", "title": "Guests", "minimum": 1, "maximum": 8},
            "name": {"type": "string", "title": "Name", "default": "Ada"},
            "email": {"type": "string", "format": "email"},
            "terrace": {"type": "boolean", "title": "Terrace", "description": "Outside"},
            "menu": {"type": "string", "title": "Menu", "oneOf": [{"const": "a", "title": "Large"}, {"const": "b"}]},
            "age": {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "Age"},
            "extras": {"type": "array", "title": "Extras", "items": {"enum": ["flowers", "music"]}},
        },
        "required": ["guests", "name"],
    },
}
SEAT: Final = {"message": "Which seat?", "options": ["4A", {"label": "By the window", "value": 7}]}
QUESTIONS: Final[Mapping[str, list[tuple[str, Any]]]] = {
    "form": [("interrupt", FORM)],
    "consent": [("interrupt", {"mode": "form", "message": "Is that right?", "requestedSchema": {"type": "object"}})],
    "again": [("interrupt", {**FORM, "error": "Guests must be a whole number."})],
    "visit": [("interrupt", {"mode": "url", "message": "Please pay.", "url": "https://example.org/pay"})],
    "evil": [("interrupt", {"mode": "url", "message": "Please pay.", "url": "javascript:window.hacked=1"})],
    "text": [("interrupt", "What is your name?")],
    "yes-no": [("interrupt", {"message": "Go on?", "responseSchema": {"type": "boolean", "title": "Yes, go on"}})],
    "two": [("interrupt", "The first?"), ("interrupt", "The second?")],
    "seat": [("choose_seat", {"row": 4})],
    "weigh": [("weigh", {"parcel": 12})],
}
"""The calls that wait for the page, by the second word of the message: their tools and inputs."""


async def _question(turn: Turn) -> Said:
    if turn.tool_outputs:
        yield f"You answered {json.dumps([output.output for output in turn.tool_outputs])}"
        return
    kind = turn.text.split()[1]
    for number, (tool, arguments) in enumerate(QUESTIONS[kind]):
        call_id = f"call-q-{number}"  # the same whenever it is asked
        if kind == "seat":
            yield Data("interrupt", {"id": call_id, "toolCallId": call_id, "value": SEAT}, call_id)
        yield ToolCall(call_id, tool, arguments, dynamic=True)


def _saying(text: str) -> Callable[[Turn], Said]:
    async def say(_turn: Turn) -> Said:
        yield text

    return say


async def _diagrams(turn: Turn) -> Said:
    """Diagrams of many kinds, each in a fence: those that are drawn, or those that are shown as source."""
    for diagram in DRAWN_DIAGRAMS if "drawn" in turn.text else SOURCE_DIAGRAMS:
        yield f"```mermaid\n{diagram}\n```\n\n"


async def _drawn(_turn: Turn) -> Said:
    """Data of each kind that the page draws."""
    yield Data("loading", {"percent": 40, "label": "Reading files"}, "loading")
    yield Data("sales", {"series": [{"name": "2025", "values": [3, 5, 2]}], "labels": ["a", "b", "c"]})
    yield Data("cities", [{"name": "Lisbon", "people": 567131}, {"name": "Porto", "people": 231800}])


async def _titled(_turn: Turn) -> Said:
    """Data with a title, and values that are no text."""
    yield Data("bars", TITLES)
    yield Data("week", [{"day": "Monday", "isOpen": True}, {"day": "Sunday", "isOpen": False}])


async def _team(_turn: Turn) -> Said:
    """Two agents, one after the other."""
    yield Data("agent", {"name": "Researcher"}, id="1", lane="1")
    yield Text("I have read it.", lane="1")
    yield Data("agent", {"name": "Writer"}, id="2", lane="2")
    yield Text("I write it down.", lane="2")


async def _flights(turn: Turn) -> Said:
    """Two tools at once, the second of which has a title."""
    yield ToolCall("call-f1", "search_flights", {"from": "BER", "to": "LIS", "isDirect": True})
    yield ToolCall("call-f2", "look_up", {"city": "Lisbon"}, title="Read the forecast")
    await _held(turn)
    yield ToolResult("call-f1", [{"flightNumber": "TP 531", "price": 129}])
    yield ToolResult("call-f2", {"degrees": 21})
    yield "There is a flight."


async def _lines(turn: Turn) -> Said:
    """As many paragraphs as the message says; the last after a gate."""
    count = int(turn.text.split()[1])
    for number in range(1, count + 1):
        if number == count:
            await _held(turn)
        yield f"Line {number} of the answer.\n\n"
        await asyncio.sleep(0.01)


async def _balance(_turn: Turn) -> Said:
    """A chart below and above zero."""
    yield Data("balance", {"series": {"euros": [-12, 31]}, "kind": "bar"})


async def _usage(_turn: Turn) -> Said:
    yield "It took a while."
    yield Metadata({"usage": {"inputTokens": 1200, "outputTokens": 34}, "durationMs": 2500})


async def _nothing(_turn: Turn) -> Said:
    for part in list[Part]():
        yield part


async def _clock(turn: Turn) -> Said:
    """Call the tool that the page itself runs."""
    if turn.tool_outputs:
        yield f"Your zone is {turn.tool_outputs[-1].output['timeZone']}."
    else:
        yield ToolCall("call-4", "browser_time", {})


async def _later(turn: Turn) -> Said:
    await _held(turn)
    yield "Here it is."


async def _think(turn: Turn) -> Said:
    yield Reasoning("Let me think about that.")
    await _held(turn)
    yield "I have thought."


async def _tools(turn: Turn) -> Said:
    yield ToolCall("call-1", "search", {"query": "usechat"})
    await _held(turn)
    await asyncio.sleep(0.2)
    yield ToolResult("call-1", {"found": 3})
    yield ToolCall("call-2", "divide", {"by": 0})
    yield ToolError("call-2", "Division by zero.")
    yield "One tool worked, one did not."


async def _cards(_turn: Turn) -> Said:
    """Two thousand calls, at the pace of an agent that is in a hurry."""
    for number in range(2000):
        yield ToolCall(f"call-{number}", "search", {"query": f"the words of the query number {number}"})
        yield ToolResult(f"call-{number}", {"found": number})
        if number % 20 == 0:
            await asyncio.sleep(0.03)
    yield "All of it is found."


async def _pondering(_turn: Turn) -> Said:
    """100 kB of reasoning."""
    async for word in _word_by_word(BLOCKS):
        yield Reasoning(word)
    yield "I have thought about all of it."


async def _measured(turn: Turn) -> Said:
    """Two thousand parts of data, at the pace of an agent that is in a hurry, or all of them `at once`."""
    for number in range(2000):
        yield Data("weather", {"city": f"The city {number}", "degrees": number}, f"city-{number}")
        if number % 20 == 0 and "at once" not in turn.text:
            await asyncio.sleep(0.03)
    yield "All of it is measured."


async def _cited(_turn: Turn) -> Said:
    """A thousand sources, and a text that goes on after them."""
    for number in range(1000):
        yield SourceUrl(f"source-{number}", f"https://host-{number}.example.org/page", f"The page {number}")
        if number % 10 == 0:
            await asyncio.sleep(0.03)
    async for word in _word_by_word("All of it is cited. " * 500):
        yield word


async def _approve(_turn: Turn) -> Said:
    yield "This needs your consent. "
    yield ToolCall("call-3", "delete_file", {"path": "notes.txt"})
    yield ApprovalRequest("approval-1", "call-3")


async def _sources(_turn: Turn) -> Said:
    yield "See the page."
    yield SourceUrl("source-1", "https://example.org/page", "The page")
    yield File(PICTURE, "image/gif")
    yield Data("weather", {"city": "Lisbon", "degrees": 21})


async def _wiki(_turn: Turn) -> Said:
    """Sources without a title."""
    yield "See both."
    yield SourceUrl("source-1", "https://en.wikipedia.org/wiki/Lisbon")
    yield SourceUrl("source-2", "https://www.example.org/")


async def _broken(_turn: Turn) -> Said:
    """A picture that is none."""
    yield File("data:image/png;base64,AAAA", "image/png")


async def _fail(turn: Turn) -> Said:
    yield "It begins well. "
    raise (
        ValueError("internal detail")
        if "inside" in turn.text
        else PublicError("The model's network is down." if "network" in turn.text else "The model is overloaded.")
    )


async def _long(_turn: Turn) -> Said:
    for number in itertools.count(1):
        yield f"word{number} "
        await asyncio.sleep(0.02)


async def _count(turn: Turn) -> Said:
    """A hundred numbers. If it is held, it also waits before the last one: a page may be slow to resume it."""
    gates = {50: "", 100: "end"}
    for number in range(1, 101):
        if number in gates:
            await _held(turn, gates[number])
        yield f"number-{number} "
        await asyncio.sleep(0.02)
    yield "end-of-count"


async def _many(turn: Turn) -> Said:
    """As many deltas as the message says, with no pause."""
    for number in range(int(turn.text.split()[1])):
        yield f"w{number} " if number % 12 else f"w{number}\n\n"
    yield "end-of-many"


async def _report(turn: Turn) -> Said:
    """As many sections as the message says, word by word."""
    sections = "".join(SECTION.replace("NUMBER", str(number)) for number in range(int(turn.text.split()[1])))
    async for word in _word_by_word(sections):
        yield word


async def _blocks(_turn: Turn) -> Said:
    async for word in _word_by_word(BLOCKS):
        yield word


async def _mixed(turn: Turn) -> Said:
    """A text of all kinds of Markdown, in pieces that end anywhere."""
    text = mixed(int(turn.text.split()[1]))
    for start in range(0, len(text), 97):
        yield text[start : start + 97]
        if start % (97 * 20) == 0:
            await asyncio.sleep(0.03)


async def _odd(turn: Turn) -> Said:
    """100 kB of one thing: a half at once and the rest at the pace of a model, or all of it `at once`."""
    text = ODD[turn.text.split()[1]]
    middle = len(text) if "at once" in turn.text else len(text) // 2
    yield text[:middle]
    await _held(turn)
    async for word in _word_by_word(text[middle:]):
        yield word
    yield END


async def _word_by_word(text: str) -> AsyncIterator[str]:
    """Say it at the pace of a fast model, and the last fifth at once."""
    words = re.findall(r"\s*\S{1,20}", text)
    for number, word in enumerate(words):
        yield word
        if number % 100 == 99 and number < len(words) * 0.8:
            await asyncio.sleep(0.03)


async def _evil(_turn: Turn) -> Said:
    """What an agent might repeat that read a hostile page."""
    yield EVIL
    yield SourceUrl("source-1", "javascript:window.hacked=1", "A source")
    yield File("data:text/html,<script>window.hacked=1</script>", "text/html")
    yield File("data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='hacked=1'/>", "image/svg+xml")
    yield File("javascript:window.hacked=1", "application/pdf")
    yield ToolCall("call-1", "<img src=x onerror=hacked=1>", {"html": "<script>hacked=1</script>"})
    yield ToolError("call-1", "<script>hacked=1</script>")


async def _files(turn: Turn) -> Said:
    yield "Files: " + ", ".join(f"{file.get('filename')} ({file['mediaType']})" for file in turn.files)


async def _approved(turn: Turn) -> Said:
    for approval in turn.approvals:
        call_id = approval.tool_call_id or ""
        if approval.approved:
            yield ToolResult(call_id, {"deleted": "notes.txt"})
            if "slowly" in turn.text:
                async for word in _count(turn):
                    yield word
            yield Text("It is gone.")
        else:
            yield ToolDenied(call_id)
            yield Text("It stays.")


def _said_by(node: str) -> dict[str, Any]:
    return {"openHarness": {"nodeId": node}}


async def _flow(turn: Turn) -> Said:
    """Three nodes, the last of which would loop back to the first."""
    nodes = ["plan", "research", "write"]
    edges = [{"from": "plan", "to": "research"}, {"from": "research", "to": "write"}]
    loop = {"from": "write", "to": "plan", "maxIterations": 2}
    yield Data("flow-graph", {"nodes": [{"id": node} for node in nodes], "edges": [*edges, loop]}, "graph")
    yield Data("flow-status", {"status": "running", "flowName": "three-nodes"}, "flow")
    for number, node in enumerate(nodes):
        status = {"nodeId": node, "runId": f"run-{number}"}
        yield Step()
        yield Data("node-status", {**status, "status": "running"}, f"run-{number}")
        for word in ("Words", "of", node):
            yield Text(f"{word} ", _said_by(node), lane=node)
            await asyncio.sleep(0.05)
        await _held(turn)
        yield Data("node-status", {**status, "status": "done", "durationMs": 150}, f"run-{number}")
        if number < len(edges):
            yield Data("edge", edges[number])
    yield Data("flow-status", {"status": "complete", "flowName": "three-nodes"}, "flow")


async def _chain(turn: Turn) -> Said:
    """Twenty nodes below each other; the last one runs."""
    nodes = [f"node-{number}" for number in range(20)]
    edges = [{"from": one, "to": other} for one, other in itertools.pairwise(nodes)]
    yield Data("flow-graph", {"nodes": [{"id": node} for node in nodes], "edges": edges}, "graph")
    yield Data("flow-status", {"status": "running", "flowName": "chain"}, "flow")
    yield Data("node-status", {"nodeId": nodes[-1], "runId": "last", "status": "running"}, "last")
    await _held(turn)
    yield "Done."


async def _parallel(_turn: Turn) -> Said:
    """Thirty nodes: one that leads to fourteen beside each other, each with one below; the last fails."""
    above, below = [f"search-{number}" for number in range(14)], [f"read-{number}" for number in range(14)]
    nodes = ["plan", *above, *below, "a-node-with-quite-a-long-name-indeed"]
    edges = [{"from": "plan", "to": node} for node in above]
    edges += [{"from": one, "to": other} for one, other in zip(above, below, strict=True)]
    edges += [{"from": node, "to": nodes[-1]} for node in below]
    yield Data("flow-graph", {"nodes": [{"id": node} for node in nodes], "edges": edges}, "graph")
    yield Data("flow-status", {"status": "running", "flowName": "thirty-nodes"}, "flow")
    for node in nodes:
        status = "failed" if node == nodes[-1] else "complete"
        yield ToolCall(node, "look", {"for": node}, provider_metadata=_said_by(node), lane=node)
        yield ToolResult(node, "seen", lane=node)
        yield Text(f"Words of {node}. ", _said_by(node), lane=node)
        yield Data("node-status", {"nodeId": node, "runId": node, "status": status, "durationMs": 1500}, node)
    for edge in edges:
        yield Data("edge", edge)
    yield Data("flow-status", {"status": "failed", "flowName": "thirty-nodes"}, "flow")
    raise PublicError("The last node failed.")


BEHAVIOURS: Final[Mapping[str, Callable[[Turn], Said]]] = {
    "approve": _approve,
    "balance": _balance,
    "blocks": _blocks,
    "broken": _broken,
    "cards": _cards,
    "chain": _chain,
    "cited": _cited,
    "clock": _clock,
    "code": _saying(LONG_CODE),
    "grammars": _saying(GRAMMARS),
    "count": _count,
    "deep": _saying(DEEP),
    "diagram": _saying(DIAGRAM),
    "diagrams": _diagrams,
    "document": _saying(DOCUMENT),
    "dollars": _saying(DOLLARS),
    "drawn": _drawn,
    "evil": _evil,
    "fail": _fail,
    "files": _files,
    "flights": _flights,
    "flow": _flow,
    "flowcharts": _saying(FLOWCHARTS),
    "footnotes": _saying("A claim[^1].\n\n" + "Some words.\n\n" * 100 + "[^1]: The source."),
    "formulas": _saying(FORMULAS),
    "hebrew": _saying("| שם | מספר |\n|---|---|\n| אחת | 1 |\n"),
    "image": _saying(f"![a dot]({PICTURE}) and ![elsewhere](https://example.org/spy.png)"),
    "later": _later,
    "lines": _lines,
    "long": _long,
    "many": _many,
    "markdown": _markdown,
    "measured": _measured,
    "mixed": _mixed,
    "nothing": _nothing,
    "odd": _odd,
    "parallel": _parallel,
    "pondering": _pondering,
    "question": _question,
    "preformatted": _saying("<pre>as it is</pre>"),
    "references": _saying("See [the page][1].\n\n" + "Some words.\n\n" * 500 + "[1]: https://example.org/page"),
    "report": _report,
    "sources": _sources,
    "table": _saying(WIDE_TABLE),
    "tasks": _saying(TASKS),
    "team": _team,
    "think": _think,
    "titled": _titled,
    "tools": _tools,
    "usage": _usage,
    "wiki": _wiki,
    "wordy": _saying(WORDY_TABLE),
}

"""Write the parts of the documentation that come from the tables of the code: `make docs`. A test checks them.

A generated block stands between `<!-- generated: name -->` and `<!-- end -->`.
"""

import ast
import contextlib
import functools
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import usechat.protocol.values
from tests.adapters.agents import Framework
from tests.adapters.frameworks import FRAMEWORKS, LITELLM, MODEL_CLIENTS
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.scripts import SCRIPTS
from usechat import FrameStream, MessageStream, Text, ToolCall, ToolResult, __version__
from usechat.check import RULES
from usechat.cli import main
from usechat.parts import Part
from usechat.protocol.chunks import CHUNK_TYPES, DataChunk
from usechat.protocol.releases import CHUNKS, DOWNGRADES, NEWEST, STRICT_UNTIL, Since
from usechat.protocol.sse import STREAM_OPEN
from usechat.protocol.states import BLOCK_TRANSITIONS, TOOL_TRANSITIONS
from usechat.server.openapi import openapi
from usechat.server.response import STREAM_HEADERS

ROOT = Path(__file__).parent.parent
OPENAPI = ROOT / "docs" / "openapi.json"
BLOCK = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n)(?:(?!<!-- ).*\n)*(<!-- end -->)")


def chunk_name(chunk: type) -> str:
    """Return the wire type of a chunk class."""
    return next(name for name, struct in CHUNK_TYPES.items() if struct is chunk)


def diagram(transitions: Mapping[Any, Mapping[Any, Any]], first: str) -> Iterator[str]:
    """Yield a state diagram; moves between the same two states share an arrow. Mermaid takes no hyphen in an id."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in transitions.items():
        for chunk, target in row.items():
            arrows.setdefault((_state_name(state), _state_name(target)), []).append(chunk_name(chunk))
    yield "```mermaid"
    yield "stateDiagram-v2"
    for name in dict.fromkeys(name for both in arrows for name in both if "-" in name):
        yield f'    state "{name}" as {_state_id(name)}'
    yield f"    [*] --> {first}"
    for (source, target), names in arrows.items():
        yield f"    {_state_id(source)} --> {_state_id(target)}: {', '.join(names)}"
    yield "```"


def _state_name(state: Any) -> str:
    return str(getattr(state, "value", state))


def _state_id(name: str) -> str:
    return name.replace("-", "_")


def since(value: Since) -> list[str]:
    """Return the cells of one row: the first release of each major, or `never`."""
    return [
        f"{major}.0.{patch}" if patch is not None else "never" for major, patch in zip((5, 6, 7), value, strict=True)
    ]


def rooms() -> Iterator[str]:
    """Yield a table per package: its modules, and the first sentence of each."""
    package = ROOT / "src" / "usechat"
    modules = [path for path in package.rglob("*.py") if "migrations" not in path.parts]
    for room in sorted({path.parent for path in modules}):
        name = room.relative_to(package.parent)
        yield f"**`{name}/`** {summary(room / '__init__.py')}"
        yield ""
        yield "| file | what it is |"
        yield "|---|---|"
        for path in sorted(path for path in modules if path.parent == room and path.name != "__init__.py"):
            yield f"| `{path.name}` | {summary(path)} |"
        yield ""


def summary(path: Path) -> str:
    """Return the first paragraph of a module's docstring, up to its first sentence, for a table."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    sentence = re.split(r"(?<=[.])\s+(?=[A-Z])", " ".join(paragraph.split()))[0]
    return re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", sentence.replace("``", "`"))


def support() -> Iterator[str]:
    """Yield the table of the first release that knows each chunk and each field that came later."""
    yield "| chunk, field | 5 | 6 | 7 |"
    yield "|---|---|---|---|"
    for name, row in CHUNKS.items():
        label = "data-*" if name == "data" else name
        yield f"| `{label}` | {' | '.join(since(row.since))} |"
        for field, field_since in row.fields.items():
            yield f"| `{label}.{field}` | {' | '.join(since(field_since))} |"


def downgrades() -> Iterator[str]:
    """Yield the table of what is sent instead of what a client does not support."""
    yield "| what the agent sends | unknown to | what the page gets instead |"
    yield "|---|---|---|"
    for row in DOWNGRADES:
        yield f"| {row.said} | {row.unknown_to} | {row.sent} |"


def releases() -> Iterator[str]:
    """Yield the releases that the tables know."""
    yield "| major | newest release in the tables | last release that rejects unknown keys |"
    yield "|---|---|---|"
    for major, newest in NEWEST.items():
        yield f"| {major} | {newest} | {STRICT_UNTIL[major]} |"


def routes() -> Iterator[str]:
    """Yield the table of all routes, from their OpenAPI description."""
    yield "| route | what it does | statuses |"
    yield "|---|---|---|"
    for path, operations in openapi(__version__)["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                statuses = ", ".join(sorted(operation["responses"]))
                yield f"| `{method.upper()} {path}` | {operation['summary']} | {statuses} |"


def stream_headers() -> Iterator[str]:
    """Yield the headers of a response that streams."""
    yield "```text"
    yield from (f"{name.decode()}: {value.decode()}" for name, value in STREAM_HEADERS)
    yield "```"


def wire_example() -> Iterator[str]:
    """Yield a whole response: text, a tool call and text."""
    frames = FrameStream(MessageStream(message_id="answer-1"))
    said: list[Part] = [
        Text("Let me look."),
        ToolCall("call-1", "weather", {"city": "Paris"}),
        ToolResult("call-1", {"celsius": 21}),
        Text("It is 21 °C."),
    ]
    body = b"".join([STREAM_OPEN, *map(frames.send, said), frames.close()])
    yield "```text"
    yield from body.decode().rstrip("\n").split("\n")
    yield "```"


def chunks() -> Iterator[str]:
    """Yield the table of all chunks: the keys that each must have, those that it may have, and its meaning."""
    yield "| `type` | required | optional | meaning |"
    yield "|---|---|---|---|"
    listed: dict[str, type[msgspec.Struct]] = {**CHUNK_TYPES, "data-<name>": DataChunk}
    for name, struct in listed.items():
        fields = [field for field in msgspec.structs.fields(struct) if field.name not in ("type", "extra")]
        keys = [
            ", ".join(f"`{field.encode_name}`" for field in fields if field.required is required)
            for required in (True, False)
        ]
        meaning = (struct.__doc__ or "").partition("\n")[0].replace("``", "`")
        for field in fields:
            meaning = meaning.replace(f"`{field.name}`", f"`{field.encode_name}`")
        yield f"| `{name}` | {' | '.join(keys)} | {meaning} |"


def rules() -> Iterator[str]:
    """Yield the rules of `usechat check`."""
    for rule in RULES.values():
        yield f"### {rule.id}: {rule.title}"
        yield ""
        yield f"- severity: {rule.severity}"
        yield f"- what the user sees: {rule.sees}"
        yield f"- how to fix it: {rule.fix}"
        yield ""


def values() -> Iterator[str]:
    """Yield the table of how Python values are encoded; it is in the docstring of the module."""
    for line in (usechat.protocol.values.__doc__ or "").splitlines():
        if line.startswith("|"):
            yield line.replace("``", "`")


def cli_help(*command: str) -> Iterator[str]:
    """Yield what a command prints for `--help`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    yield "```text"
    yield printed.getvalue().rstrip("\n")
    yield "```"


def what_works(page: str) -> Iterator[str]:
    """Yield the table of what works with a framework: for each script of the tests, `works` or what happens instead."""
    every = (*FRAMEWORKS, *MODEL_CLIENTS, *LITELLM, *RECORDED_FRAMEWORKS)
    frameworks = [framework for framework in every if framework.page == page]
    yield f"| what | {' | '.join(framework.name for framework in frameworks)} |"
    yield "|---" * (len(frameworks) + 1) + "|"
    for script in SCRIPTS:
        cells = [_cell(framework, script.name) for framework in frameworks]
        yield f"| {script.name} | {' | '.join(cells)} |"


def _cell(framework: Framework, script: str) -> str:
    return framework.limits.get(script, "not tested" if script in framework.not_played else "works")


BLOCKS: Mapping[str, Callable[[], Iterator[str]]] = {
    "block-states": lambda: diagram(BLOCK_TRANSITIONS, "closed"),
    "tool-states": lambda: diagram(TOOL_TRANSITIONS, "absent"),
    "rooms": rooms,
    "support": support,
    "downgrades": downgrades,
    "releases": releases,
    "routes": routes,
    "stream-headers": stream_headers,
    "wire-example": wire_example,
    "chunks": chunks,
    "rules": rules,
    "values": values,
    "a2a-works": lambda: what_works("a2a"),
    "ag-ui-works": lambda: what_works("ag-ui"),
    "agent-framework-works": lambda: what_works("agent-framework"),
    "agno-works": lambda: what_works("agno"),
    "claude-works": lambda: what_works("claude"),
    "crewai-works": lambda: what_works("crewai"),
    "dspy-works": lambda: what_works("dspy"),
    "google-adk-works": lambda: what_works("google-adk"),
    "haystack-works": lambda: what_works("haystack"),
    "langgraph-works": lambda: what_works("langgraph"),
    "llama-index-works": lambda: what_works("llama-index"),
    "model-clients-works": lambda: what_works("model-clients"),
    "openai-agents-works": lambda: what_works("openai-agents"),
    "pydantic-ai-works": lambda: what_works("pydantic-ai"),
    "smolagents-works": lambda: what_works("smolagents"),
    "strands-works": lambda: what_works("strands"),
    "help": cli_help,
    **{
        f"help-{name}": functools.partial(cli_help, name)
        for name in ("chat", "chats", "check", "demo", "diff", "record", "serve", "sessions", "types", "worker")
    },
}


def regenerate(text: str) -> str:
    """Return a page with all its generated blocks written again."""
    return BLOCK.sub(lambda found: found[1] + "\n".join(BLOCKS[found[2]]()) + "\n" + found[3], text)


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def openapi_page() -> str:
    """Return the description of the routes as a file."""
    return json.dumps(openapi(__version__), indent=2) + "\n"


if __name__ == "__main__":
    OPENAPI.write_text(openapi_page(), encoding="utf-8")
    for page in pages():
        page.write_text(regenerate(page.read_text(encoding="utf-8")), encoding="utf-8")

"""Write the parts of the documentation that come from the tables of the code: `make docs`. A test checks them.

A generated block stands between `<!-- generated: name -->` and `<!-- end -->`.
"""

import ast
import contextlib
import functools
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

import usechat.protocol.values
from tests.adapters.agents import Framework
from tests.adapters.frameworks import FRAMEWORKS, LITELLM, MODEL_CLIENTS
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.scripts import SCRIPTS
from tests.deploy.matrix import PROXIES, PROXY_CHECKS, SERVER_CHECKS, SERVERS
from tests.deploy.times import PROXY_TIMES, SERVER_TIMES, recorded, table
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
from usechat.starter import project

ROOT = Path(__file__).parent.parent
OPENAPI = ROOT / "docs" / "openapi.json"
SKILL = ROOT / "src" / "usechat" / ".agents" / "skills" / "usechat" / "SKILL.md"
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
    parts: list[Part] = [
        Text("Let me look."),
        ToolCall("call-1", "weather", {"city": "Paris"}),
        ToolResult("call-1", {"celsius": 21}),
        Text("It is 21 °C."),
    ]
    body = b"".join([STREAM_OPEN, *map(frames.send, parts), frames.close()])
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


def starter_choices() -> Iterator[str]:
    """Yield the frameworks and pages of a new project."""
    yield from (f"- `--framework {name}`: {what}" for name, what in project.FRAMEWORKS.items())
    yield from (f"- `--page {name}`: {what}" for name, what in project.PAGES.items())


def cli_help(*command: str, option: str = "--help") -> Iterator[str]:
    """Yield what a command prints for `--help`, or for `--help-all`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, option])
    yield "```text"
    yield printed.getvalue().rstrip("\n")
    yield "```"


def what_works(page: str) -> Iterator[str]:
    """Yield the table of what works with a framework: for each script of the tests, `works` or what happens instead."""
    frameworks = [framework for framework in _frameworks() if framework.page == page]
    yield f"| what | {' | '.join(framework.name for framework in frameworks)} |"
    yield "|---" * (len(frameworks) + 1) + "|"
    for script in SCRIPTS:
        cells = [_cell(framework, script.name) for framework in frameworks]
        yield f"| {script.name} | {' | '.join(cells)} |"


def _cell(framework: Framework, script: str) -> str:
    return framework.limits.get(script, "not tested" if script in framework.not_played else "works")


def proxies() -> Iterator[str]:
    """Yield the table of what works behind which proxy."""
    yield f"| | {' | '.join(PROXIES)} |"
    yield "|---" * (len(PROXIES) + 1) + "|"
    for check in PROXY_CHECKS:
        yield f"| {check} | {' | '.join(proxy.result(check) for proxy in PROXIES.values())} |"


def servers() -> Iterator[str]:
    """Yield the table of what works on which ASGI server."""
    yield f"| server | command | {' | '.join(SERVER_CHECKS)} |"
    yield "|---" * (len(SERVER_CHECKS) + 2) + "|"
    for name, server in SERVERS.items():
        yield f"| {name} | `{server.command}` | {' | '.join(map(server.result, SERVER_CHECKS))} |"


def sub_paths() -> Iterator[str]:
    """Yield the table of what to change in the configuration of a proxy for a path below its root."""
    yield "| proxy | instead of | write |"
    yield "|---|---|---|"
    for name, proxy in PROXIES.items():
        for old, new in proxy.sub_path:
            yield f"| {name} | `{old.strip()}` | {' '.join(f'`{line.strip()}`' for line in new.splitlines())} |"


def is_released(changelog: str) -> bool:
    """Tell whether PyPI has a release: the changelog then has a version with a date."""
    return re.search(r"^## \[[^\]]+\] - \d{4}-", changelog, re.MULTILINE) is not None


def install(*, from_index: bool) -> Iterator[str]:
    """Yield how to install usechat: from PyPI, or from a checkout until there is a release."""
    yield "```sh"
    if from_index:
        yield "pip install usechat"
    else:
        yield "pip install .  # in a checkout, until there is a release; or: uv pip install ."
        yield "make dist      # builds a wheel into dist/, for other machines"
    yield "```"


CHOOSER: Final = {
    "langgraph": "LangGraph",
    "openai-agents": "OpenAI Agents",
    "pydantic-ai": "Pydantic AI",
    "claude": "Claude Agent SDK",
    "google-adk": "Google ADK",
    "agno": "Agno",
    "strands": "Strands",
    "llama-index": "LlamaIndex",
    "agent-framework": "Microsoft Agent Framework",
    "crewai": "CrewAI",
    "haystack": "Haystack",
    "smolagents": "smolagents",
    "dspy": "DSPy",
    "model-clients": "OpenAI, Anthropic, LiteLLM",
    "ag-ui": "AG-UI",
    "a2a": "A2A",
}
"""The pages of the frameworks and their names, in the order of the chooser."""


def chooser() -> Iterator[str]:
    """Yield a section per framework: how to install it, its agent, how to serve it, and what works."""
    for page, name in CHOOSER.items():
        text = (ROOT / "docs" / "frameworks" / f"{page}.md").read_text(encoding="utf-8")
        commands = [line for block in _blocks(text, "sh") for line in block.splitlines()]
        command = next(line for line in commands if line.startswith("usechat serve"))
        before = commands[: commands.index(command)]
        yield f"### {name}"
        yield ""
        yield from _fenced("sh", next((line for line in before if line.startswith("pip install")), ""))
        if "--as" not in command:
            yield "`my_app.py`:"
            yield ""
            yield from _fenced("python", agent_in(_blocks(text, "python")[0]))
        yield from _fenced("sh", command)
        yield from _outcomes(page)
        yield f"[More about {name}](frameworks/{page}.md)"
        yield ""


def conversations() -> Iterator[str]:
    """Yield what the tests do with each framework."""
    names = ", ".join(script.name for script in SCRIPTS)
    yield from textwrap.wrap(
        f"The tests have up to {len(SCRIPTS)} conversations with each framework: {names}.", width=128
    )


def agent_in(code: str) -> str:
    """Return the agent of the first example of a framework's page: the code without the route."""
    lines = code.partition("@app.post")[0].splitlines()
    lines = [line for line in lines if not line.startswith(("from fastapi", "app = FastAPI"))]
    text = "\n".join(lines).replace("from usechat import chat_response\n", "").replace(", chat_response", "")
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    return re.sub(r"^((?:import|from) .*)\n{3,}(?=\w+ = )", r"\1\n\n", text, flags=re.MULTILINE).strip()


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _fenced(language: str, text: str) -> Iterator[str]:
    if text:
        yield from (f"```{language}", text, "```", "")


def _outcomes(page: str) -> Iterator[str]:
    """Yield what works with the first framework of a page, what happens instead, and what is not tested."""
    framework = next(each for each in _frameworks() if each.page == page)
    scripts: dict[str, list[str]] = {"works": [], "not tested": []}
    for script in SCRIPTS:
        scripts.setdefault(_cell(framework, script.name), []).append(script.name)
    works, untested = scripts.pop("works"), scripts.pop("not tested")
    yield f"- **Works**: {len(works)} of {len(SCRIPTS)} conversations"
    yield from (f"- **{_capitalized(', '.join(names))}**: {sentence}" for sentence, names in scripts.items())
    if untested:
        yield f"- **Not tested**: {', '.join(untested)}"
    yield ""


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _frameworks() -> tuple[Framework, ...]:
    return (*FRAMEWORKS, *MODEL_CLIENTS, *LITELLM, *RECORDED_FRAMEWORKS)


BLOCKS: Mapping[str, Callable[[], Iterator[str]]] = {
    "block-states": lambda: diagram(BLOCK_TRANSITIONS, "closed"),
    "tool-states": lambda: diagram(TOOL_TRANSITIONS, "absent"),
    "rooms": rooms,
    "install": lambda: install(from_index=is_released((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))),
    "chooser": chooser,
    "conversations": conversations,
    "support": support,
    "downgrades": downgrades,
    "releases": releases,
    "routes": routes,
    "stream-headers": stream_headers,
    "wire-example": wire_example,
    "chunks": chunks,
    "rules": rules,
    "values": values,
    "proxies": proxies,
    "proxy-times": lambda: table(PROXIES, PROXY_TIMES, recorded()),
    "servers": servers,
    "server-times": lambda: table(SERVERS, SERVER_TIMES, recorded()),
    "sub-paths": sub_paths,
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
    "starter-choices": starter_choices,
    "help": cli_help,
    **{
        f"help-{name}": functools.partial(cli_help, name)
        for name in (
            "chat",
            "chats",
            "check",
            "demo",
            "diff",
            "docs",
            "new",
            "record",
            "serve",
            "sessions",
            "types",
            "worker",
        )
    },
    **{f"help-all-{name}": functools.partial(cli_help, name, option="--help-all") for name in ("serve", "worker")},
}


def regenerate(text: str) -> str:
    """Return a page with all its generated blocks written again."""
    return BLOCK.sub(lambda match: match[1] + "\n".join(BLOCKS[match[2]]()) + "\n" + match[3], text)


def pages() -> list[Path]:
    """Return every page of the documentation, and the skill for coding agents that the wheel holds."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), SKILL])


def openapi_page() -> str:
    """Return the description of the routes as a file."""
    return json.dumps(openapi(__version__), indent=2) + "\n"


if __name__ == "__main__":
    OPENAPI.write_text(openapi_page(), encoding="utf-8")
    for page in pages():
        page.write_text(regenerate(page.read_text(encoding="utf-8")), encoding="utf-8")

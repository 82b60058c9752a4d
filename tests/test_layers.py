"""The layers: modules import downwards only, and `import usechat` stays light."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import usechat
from tests.syntax_trees import nodes_of

pytestmark = pytest.mark.once

PACKAGE = Path(usechat.__file__).parent
TESTS = Path(__file__).parent
PYPROJECT = TESTS.parent / "pyproject.toml"

PROTOCOL = [
    "values",
    "parts",
    "chunks",
    "releases",
    "states",
    "ui_messages",
    "mcp_apps",
    "content",
    "tool_calls",
    "stream",
    "sse",
    "model_messages",
    "partial_json",
    "tool_parts",
    "message",
    "validation",
    "schema",
    "request",
    "reframing",
]
"""From the bottom up. The protocol does no I/O."""

LAYERS = [
    "lazy",
    "errors",
    "documentation",
    "certificates",
    "sqlite",
    "database",
    *(f"protocol.{name}" for name in PROTOCOL),
    "protocol",
    "parts",
    "ui_messages",
    "check",
    "ids",
    "threads",
    "pauses.states",
    "turn",
    "encoded_turns",
    "values",
    "pauses.handles",
    "pauses.questions",
    "input_mapping",
    "sources",
    "pauses",
    "typescript",
    "adapters.sub_agents",
    "adapters.model_files",
    "adapters.conversation",
    "adapters.framework",
    "adapters.langgraph_memory",
    "adapters",
    "client.views",
    "client.relay",
    "client.transport",
    "client.websocket",
    "client.chat",
    "client.sync",
    "client.recording",
    "client.terminal",
    "client",
    "chats",
    "runs",
    "transports",
    "server",
    "client.in_process",
    "testing",
    "cli.announcement",
    "cli.options",
    "cli.parser",
    "targets",
    "cli.targets",
    "adapters.targets",
    "client.target",
    "cli.auth",
    "cli.plan",
    "cli.serve",
    "cli.worker",
    "__init__",
    "open_harness",
    "genkit",
    "agent_ops",
    "temporal",
    "starter",
    "cli",
    "demo",
]
"""From the bottom up: a module, or a whole subpackage, imports only what stands before it."""

SYSTEMS = ("open_harness", "genkit", "agent_ops", "demo")
"""Packages that import what a stranger could: each could be a distribution of its own."""

PROTOCOL_MAY_IMPORT = {"msgspec", "usechat"} | (
    set(sys.stdlib_module_names) - {"asyncio", "logging", "os", "random", "secrets", "socket", "threading", "time"}
)
SERVER_LIBRARIES = {"anyio", "click", "httpx2", "starlette", "uvicorn", "websockets"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(name: str) -> str | None:
    """Return the layer of a dotted name below `usechat`: the longest entry of LAYERS that it begins with."""
    return max((layer for layer in LAYERS if f"{name}.".startswith(f"{layer}.")), key=len, default=None)


def name_of(module: Path) -> str:
    return ".".join(module.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imports_of(module: Path) -> Iterator[str]:
    for node in nodes_of(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "relative imports are not used"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: Path) -> Iterator[str]:
    """Yield the layers of ours that a module imports; `import usechat` itself is the layer `__init__`."""
    for name in imports_of(module):
        root, _, below = name.partition(".")
        if root == "usechat":
            yield layer_of(below) or "__init__"


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_a_module_has_a_layer_and_imports_only_lower_ones(module: Path) -> None:
    layer = layer_of(name_of(module))
    assert layer is not None, "give the new module its place in LAYERS"
    too_high = {name for name in own_imports(module) if LAYERS.index(name) > LAYERS.index(layer)}
    assert too_high == set()


def test_modules_import_each_other_in_one_direction() -> None:
    """Imports within functions and those for type checkers count, too."""
    modules = {f"usechat.{name_of(module)}": module for module in MODULES if module.name != "__init__.py"}
    graph = {
        name: {
            module_name
            for each in imports_of(module)
            for module_name in (each, each.rpartition(".")[0])
            if module_name in modules
        }
        for name, module in modules.items()
    }
    assert set(TopologicalSorter(graph).static_order()) == modules.keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_imports_public_names_alone(system: str) -> None:
    public = set(TESTS.joinpath("public_names.txt").read_text(encoding="utf-8").split())
    public |= {name.rpartition(".")[0] for name in public}
    imported = {name for module in (PACKAGE / system).rglob("*.py") for name in imports_of(module)}
    foreign = {name for name in imported if name.startswith("usechat.") and not name.startswith(f"usechat.{system}.")}
    assert foreign - public == set()


@pytest.mark.parametrize("room", ["cli", "server"])
def test_the_command_line_and_the_server_know_no_system(room: str) -> None:
    systems = {name for module in (PACKAGE / room).rglob("*.py") for name in own_imports(module)} & {*SYSTEMS}
    assert systems == set()


@pytest.mark.parametrize("module", sorted((PACKAGE / "protocol").glob("*.py")), ids=name_of)
def test_the_protocol_imports_msgspec_and_the_pure_standard_library_alone(module: Path) -> None:
    assert {name.split(".")[0] for name in imports_of(module)} <= PROTOCOL_MAY_IMPORT


def test_the_tests_mirror_the_packages() -> None:
    """A directory of tests is a package of ours, one of its modules, or a suite about all of them."""
    suites = {"browser", "browsers", "conformance", "contracts", "deploy"}
    rooms = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")} - {Path()}
    packages = {module.parent.relative_to(PACKAGE) for module in MODULES}
    modules = {module.relative_to(PACKAGE).with_suffix("") for module in MODULES}
    assert {room for room in rooms if room.parts[0] not in suites} <= packages | modules


def test_the_coverage_gate_is_over_the_whole_protocol_and_the_checker() -> None:
    report = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["coverage"]["report"]
    gated = ["check/*", "errors", "parts", "protocol/*"]
    assert (report["fail_under"], report["include"]) == (100, [f"src/usechat/{name}.py" for name in gated])


def test_importing_usechat_imports_no_server_library() -> None:
    program = "import sys, usechat; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert SERVER_LIBRARIES & set(loaded) == set()

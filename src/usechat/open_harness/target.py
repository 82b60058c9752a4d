"""The kind `open-harness` of `usechat serve`: a flow file, or flows that run elsewhere."""

import sqlite3
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from usechat.errors import CannotLoad, InvalidSetting
from usechat.input_mapping import read_mapping
from usechat.open_harness.errors import InvalidFlow
from usechat.targets import CommonOptions, OptionGroup, TargetAgent, load_object

if TYPE_CHECKING:
    from usechat.open_harness.engine.store import FlowRunStore
    from usechat.open_harness.flow.definition import FlowDefinition
    from usechat.open_harness.nodes.registry import NodeRegistry
    from usechat.open_harness.transport import RuntimeFactory

__all__ = ["OpenHarnessTarget"]

_SCHEMES: Final = ("ws", "wss", "http", "https")


class OpenHarnessOptions(msgspec.Struct, frozen=True):
    """The options of this kind."""

    input: str = ""
    registry: str = ""
    run_store: str = ""


class OpenHarnessTarget:
    """Serves a flow file, or the flows at an address. The page gets the flow's nodes, too, so that it can draw them."""

    summary = "a flow file (.yaml, also without --as), or flows at ws://HOST/PATH or http://HOST"
    options = OpenHarnessOptions

    def recognises(self, target: str) -> bool:
        """Tell whether this is the name of a flow file."""
        return target.endswith((".yaml", ".yml"))

    def add_options(self, group: OptionGroup) -> None:
        """Add where the flow's input comes from, and its types of nodes."""
        group.add_argument(
            "--input",
            metavar="KEY=SOURCE,...",
            help="the source of each key of flow.input: text (of the message) or body.FIELD, such as topic=text",
        )
        group.add_argument(
            "--registry", metavar="MODULE:NAME", help="a NodeRegistry with your own node types and models"
        )
        group.add_argument(
            "--run-store",
            metavar="STORE",
            help="the store of paused flows and of the agents' message histories: an SQLite file, or"
            " postgresql://USER@HOST/DATABASE, which all workers share (default: in memory)",
        )

    def open(self, target: str, options: OpenHarnessOptions, common: CommonOptions) -> TargetAgent:  # noqa: ARG002
        """Return a transport; a broken flow or address is an error now, not for the first user."""
        from usechat.open_harness.transport import OpenHarnessChatTransport

        scheme, is_address, _ = target.partition("://")
        if is_address and options.registry:
            raise InvalidSetting("--registry is for flow files: a flow at an address has its own types of nodes")
        if is_address and options.run_store:
            raise InvalidSetting("--run-store is for flow files: a flow at an address keeps its own runs")
        factory = _flows_at(scheme, target) if is_address else _open_file(target, options)
        mapping = read_mapping(options.input) if options.input else None
        return TargetAgent(OpenHarnessChatTransport(factory, input=mapping, send_flow_metadata=True))


def _flows_at(scheme: str, url: str) -> "RuntimeFactory":
    if scheme not in _SCHEMES:
        raise CannotLoad(f"no flow can be reached at {scheme}://; give ws://, wss://, http:// or https://")
    if scheme.startswith("http"):
        from usechat.open_harness.remote.sessions import RemoteSessions

        return RemoteSessions(url)
    from functools import partial

    from usechat.open_harness.remote.flows import RemoteRuntime

    RemoteRuntime(url)  # raises if the URL cannot be one
    return partial(RemoteRuntime, url)


def _open_file(target: str, options: OpenHarnessOptions) -> "RuntimeFactory":
    path = Path(target)
    if not path.is_file():
        raise CannotLoad(f"there is no flow file {target}; give one, or an address such as ws://localhost:42069/ws")
    from usechat.open_harness.engine.runtime import FlowRuntimes
    from usechat.open_harness.flow.reading import load_flow
    from usechat.open_harness.nodes.builtin import default_registry

    directory = str(path.resolve().parent)
    if directory not in sys.path:  # its functions live beside it
        sys.path.insert(0, directory)
    registry = _registry(options.registry) if options.registry else default_registry()
    flow = load_flow(path, registry=registry)
    _require_models(flow, registry, target)
    return FlowRuntimes(flow, registry=registry, store=_run_store(options.run_store) if options.run_store else None)


def _run_store(place: str) -> "FlowRunStore":
    if "://" not in place:
        from usechat.open_harness.engine.sqlite_store import SqliteRunStore

        try:
            return SqliteRunStore(place)
        except sqlite3.Error as error:
            raise InvalidSetting(f"--run-store: {place} cannot be used as an SQLite file: {error}") from None
    from usechat.open_harness.engine.postgres_store import PostgresRunStore

    try:
        store = PostgresRunStore(place)
    except InvalidSetting:
        raise InvalidSetting(
            "--run-store takes the name of an SQLite file, or a URL such as postgresql://USER@HOST/DATABASE"
        ) from None
    try:
        store.open()
    except InvalidSetting as error:
        store.close()
        raise InvalidSetting(f"--run-store: {error}") from None
    return store


def _registry(name: str) -> "NodeRegistry":
    from usechat.open_harness.nodes.registry import NodeRegistry

    registry = load_object(name)
    if not isinstance(registry, NodeRegistry):
        raise InvalidSetting(f"--registry: {name} is not a NodeRegistry; make one with default_registry()")
    return registry


def _require_models(flow: "FlowDefinition", registry: "NodeRegistry", target: str) -> None:
    """Raise ``InvalidFlow`` for models that cannot be used, such as without a key."""
    from usechat.open_harness.flow.problems import FlowProblem
    from usechat.open_harness.nodes.agent import AgentNode

    kinds = [(node, registry.get(node.type)) for node in flow.nodes]
    agents = [(node, kind) for node, kind in kinds if isinstance(kind, AgentNode) and kind.uses_pydantic_ai(node.input)]
    if not agents:
        return
    # This takes seconds; at this point no user waits for an answer.
    provider = import_module("usechat.open_harness.models.pydantic_ai")
    models = [(node, kind.model(node.input)) for node, kind in agents]
    problems: Sequence[FlowProblem] = [
        FlowProblem(f'node "{node.id}", model', problem)
        for node, model in models
        if "{{" not in model and (problem := provider.model_problem(model))
    ]
    if problems:
        raise InvalidFlow(target, problems)

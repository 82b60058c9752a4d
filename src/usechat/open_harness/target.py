"""What `usechat serve` makes of a flow file, and of the address of flows that run elsewhere."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from usechat.cli.targets import Opened
from usechat.errors import CannotLoad, InvalidFlow
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.flow.problems import FlowProblem
from usechat.open_harness.flow.reading import load_flow
from usechat.open_harness.nodes.agent import AgentNode
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.remote.flows import RemoteRuntime
from usechat.open_harness.remote.sessions import RemoteSessions
from usechat.open_harness.transport import OpenHarnessChatTransport, RuntimeFactory

__all__ = ["open_target"]


def _runtimes_at(url: str) -> RuntimeFactory:
    RemoteRuntime(url)  # a URL that cannot be one is told now, not to the first user
    return partial(RemoteRuntime, url)


_OPENERS: Final[Mapping[str, Callable[[str], RuntimeFactory]]] = {
    "ws": _runtimes_at,
    "wss": _runtimes_at,
    "http": RemoteSessions,
    "https": RemoteSessions,
}


def open_target(target: str) -> Opened:
    """Return a transport for a flow file, or for flows at ``ws://…`` or ``http://…``.

    It tells the page about the flow's nodes as well, so that it can draw them.
    """
    scheme, is_address, _ = target.partition("://")
    if is_address and scheme not in _OPENERS:
        raise CannotLoad(f"no flow can be reached at {scheme}://; give ws://, wss://, http:// or https://")
    factory = _OPENERS[scheme](target) if is_address else _open_file(target)
    return Opened(OpenHarnessChatTransport(factory, send_flow_metadata=True))


def _open_file(target: str) -> RuntimeFactory:
    path = Path(target)
    if not path.is_file():
        raise CannotLoad(f"there is no flow file {target}; give one, or an address such as ws://localhost:42069/ws")
    directory = str(path.resolve().parent)
    if directory not in sys.path:  # its functions live beside it
        sys.path.insert(0, directory)
    registry = default_registry()
    flow = load_flow(path, registry=registry)
    _require_models(flow, registry, target)
    return partial(FlowRuntime, flow, registry=registry)


def _require_models(flow: FlowDefinition, registry: NodeRegistry, target: str) -> None:
    """Raise an InvalidFlow for models that cannot be asked: a missing key is told now, not to the first user."""
    agents = [(node, kind) for node in flow.nodes if isinstance(kind := registry.get(node.type), AgentNode)]
    if not agents:
        return
    provider = import_module(
        "usechat.open_harness.models.pydantic_ai"
    )  # takes seconds, and now nobody waits for an answer
    asked = [(node, kind.model(node.input)) for node, kind in agents]
    problems = [
        FlowProblem(f'node "{node.id}", model', problem)
        for node, model in asked
        if "{{" not in model and (problem := provider.model_problem(model))
    ]
    if problems:
        raise InvalidFlow(target, problems)

"""The kind `open-harness` of `usechat serve`: a flow file, or flows that run elsewhere."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from usechat.cli.targets import Answer, CommonOptions, NoOptions, OptionGroup
from usechat.errors import CannotLoad, InvalidFlow

if TYPE_CHECKING:
    from usechat.open_harness.flow.definition import FlowDefinition
    from usechat.open_harness.nodes.registry import NodeRegistry
    from usechat.open_harness.transport import RuntimeFactory

__all__ = ["OpenHarnessTarget"]

_SCHEMES: Final = ("ws", "wss", "http", "https")


class OpenHarnessTarget:
    """Serves a flow file, or the flows at an address. The page gets the flow's nodes, too, so that it can draw them."""

    summary = "a flow file (.yaml, also without --as), or flows at ws://HOST/PATH or http://HOST"
    options = NoOptions

    def recognises(self, target: str) -> bool:
        """Tell whether this is the name of a flow file."""
        return target.endswith((".yaml", ".yml"))

    def add_options(self, group: OptionGroup) -> None:
        """Add nothing: the flow says it all."""

    def open(self, target: str, options: NoOptions, common: CommonOptions) -> Answer:  # noqa: ARG002
        """Return a transport; what is wrong with the flow or the address is told now, not to the first user."""
        from usechat.open_harness.transport import OpenHarnessChatTransport

        scheme, is_address, _ = target.partition("://")
        factory = _flows_at(scheme, target) if is_address else _open_file(target)
        return Answer(OpenHarnessChatTransport(factory, send_flow_metadata=True))


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


def _open_file(target: str) -> "RuntimeFactory":
    path = Path(target)
    if not path.is_file():
        raise CannotLoad(f"there is no flow file {target}; give one, or an address such as ws://localhost:42069/ws")
    from functools import partial

    from usechat.open_harness.engine.runtime import FlowRuntime
    from usechat.open_harness.flow.reading import load_flow
    from usechat.open_harness.nodes.builtin import default_registry

    directory = str(path.resolve().parent)
    if directory not in sys.path:  # its functions live beside it
        sys.path.insert(0, directory)
    registry = default_registry()
    flow = load_flow(path, registry=registry)
    _require_models(flow, registry, target)
    return partial(FlowRuntime, flow, registry=registry)


def _require_models(flow: "FlowDefinition", registry: "NodeRegistry", target: str) -> None:
    """Raise ``InvalidFlow`` for models that cannot be used, such as without a key."""
    from usechat.open_harness.flow.problems import FlowProblem
    from usechat.open_harness.nodes.agent import AgentNode

    agents = [(node, kind) for node in flow.nodes if isinstance(kind := registry.get(node.type), AgentNode)]
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

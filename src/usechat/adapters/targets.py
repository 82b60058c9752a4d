"""The kinds `ag-ui` and `a2a` of `usechat serve`: an agent behind one of these protocols, at its address."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from usechat.cli import options as read
from usechat.targets import CommonOptions, OptionGroup, TargetAgent

__all__ = ["A2aTarget", "AgUiTarget", "RemoteAgentOptions"]


class RemoteAgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of both kinds; `usechat serve --help` explains them."""

    upstream_token: str | None = None
    header: tuple[str, ...] = ()
    pass_on: tuple[str, ...] = ()
    insecure: bool = False


class _RemoteAgent(ABC):
    """An agent over HTTP, in any language."""

    options = RemoteAgentOptions

    @abstractmethod
    def _endpoint(self) -> Callable[..., Any]:
        """Import the class of the source; it takes an address."""

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add how the agent is called."""
        add = group.add_argument
        add("--upstream-token", metavar="FILE", help="call the agent with the bearer token in this file")
        add("--header", action="append", metavar="'NAME: VALUE'",
            help="add this header to the requests to the agent; repeatable")  # fmt: skip
        add("--pass-on", action="append", metavar="NAME",
            help="forward this header of the page's request to the agent, such as authorization;"
            " repeatable")  # fmt: skip
        add("--insecure", action="store_true", help="accept every TLS certificate of the agent")

    def open(self, target: str, options: RemoteAgentOptions, common: CommonOptions) -> TargetAgent:  # noqa: ARG002
        """Return a source that sends each turn to the agent."""
        return TargetAgent(
            self._endpoint()(
                target,
                headers=read.upstream_headers(options.header, options.upstream_token),
                pass_on=options.pass_on,
                verify=not options.insecure,
            )
        )


class AgUiTarget(_RemoteAgent):
    """Serves an agent behind the AG-UI protocol."""

    summary = "an agent behind the AG-UI protocol, in any language: http://HOST/PATH"

    def _endpoint(self) -> Callable[..., Any]:
        from usechat.adapters.ag_ui import AgUiEndpoint

        return AgUiEndpoint


class A2aTarget(_RemoteAgent):
    """Serves an agent behind the A2A protocol."""

    summary = "an agent behind the A2A protocol, in any language: http://HOST, or the address of its card"

    def _endpoint(self) -> Callable[..., Any]:
        from usechat.adapters.a2a import A2aEndpoint

        return A2aEndpoint

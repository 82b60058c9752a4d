"""The kind `ag-ui` of `usechat serve`: an agent behind the AG-UI protocol, at its address."""

import msgspec

from usechat.cli import options as read
from usechat.cli.targets import CommonOptions, OptionGroup, ServedAnswer

__all__ = ["AgUiOptions", "AgUiTarget"]


class AgUiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kind; `usechat serve --help` explains them."""

    upstream_token: str | None = None
    header: tuple[str, ...] = ()
    pass_on: tuple[str, ...] = ()
    insecure: bool = False


class AgUiTarget:
    """Serves an agent behind the AG-UI protocol, in any language, over HTTP."""

    summary = "an agent behind the AG-UI protocol, in any language: http://HOST/PATH"
    options = AgUiOptions

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add how the agent is called."""
        add = group.add_argument
        add("--upstream-token", metavar="FILE", help="call the agent with this bearer token")
        add("--header", action="append", metavar="'NAME: VALUE'", help="send this header to the agent; repeatable")
        add("--pass-on", action="append", metavar="NAME",
            help="pass this header of the page's request on to the agent, too, such as authorization;"
            " repeatable")  # fmt: skip
        add("--insecure", action="store_true", help="accept every TLS certificate of the agent")

    def open(self, target: str, options: AgUiOptions, common: CommonOptions) -> ServedAnswer:  # noqa: ARG002
        """Return a source that posts each turn to the agent."""
        from usechat.adapters.ag_ui import AgUiEndpoint

        return ServedAnswer(
            AgUiEndpoint(
                target,
                headers=read.upstream_headers(options.header, options.upstream_token),
                pass_on=options.pass_on,
                verify=not options.insecure,
            )
        )

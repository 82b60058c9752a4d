"""The kind `genkit` of `usechat serve`: a flow at its address, or a Python object."""

from urllib.parse import urldefrag, urlsplit

from usechat.cli.targets import Answer, CommonOptions, NoOptions, OptionGroup, load_object
from usechat.errors import InvalidAddress

__all__ = ["GenkitTarget"]


class GenkitTarget:
    """Serves a flow at its address, such as ``http://127.0.0.1:3400/chatFlow``, or a Python flow, prompt or agent.

    The flow answers at ``/chatFlow/stream``, too. The fragment of the address names what the flow takes: ``#text``,
    ``#history`` (the default), ``#messages``, ``#agent`` or ``#stateless-agent``.
    """

    summary = "a flow at http://HOST/FLOW#INPUT, or MODULE:NAME of a Python flow, prompt or agent"
    options = NoOptions

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything, and Python objects are found by their adapter."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add nothing: the fragment of the address says it."""

    def open(self, target: str, options: NoOptions, common: CommonOptions) -> Answer:  # noqa: ARG002
        """Return a transport for the flow."""
        from usechat.genkit.inputs import INPUTS
        from usechat.genkit.transport import GenkitChatTransport

        if not _is_address(target):
            flow = load_object(target)
            return Answer(GenkitChatTransport(flow), _also(getattr(flow, "name", "")))
        url, shape = urldefrag(target)
        if shape and shape not in INPUTS:
            raise InvalidAddress(
                f"#{shape} is not an input of a flow; there are {', '.join(f'#{name}' for name in INPUTS)}"
            )
        transport = GenkitChatTransport(url, build_input=INPUTS[shape] if shape else None)
        return Answer(transport, _also(urlsplit(url).path))


def _is_address(target: str) -> bool:
    """Tell whether a target is meant as an address, even a wrong one: the names of objects have no slash."""
    _, colon, last = target.rpartition(":")
    return "://" in target or bool(colon and "/" in last)


def _also(path: str) -> tuple[str, ...]:
    """Return the path that the Genkit chat specification asks for."""
    return (f"/{path.strip('/')}/stream",) if path.strip("/") else ()

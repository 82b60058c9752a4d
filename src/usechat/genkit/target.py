"""What `usechat serve --as genkit` serves: a flow at its address, or a Python object."""

from urllib.parse import urldefrag, urlsplit

from usechat.cli.targets import Opened, load_object
from usechat.errors import LocalProtocolError
from usechat.genkit.inputs import INPUTS
from usechat.genkit.transport import GenkitChatTransport

__all__ = ["open_target"]


def open_target(target: str) -> Opened:
    """Return what answers for a target such as ``http://127.0.0.1:3400/chatFlow``, also at ``/chatFlow/stream``.

    The fragment names what the flow takes: ``#text``, ``#history`` (the default), ``#messages``, ``#agent`` or
    ``#stateless-agent``.
    """
    if not _is_address(target):
        flow = load_object(target)
        return Opened(GenkitChatTransport(flow), _also(getattr(flow, "name", "")))
    url, shape = urldefrag(target)
    if shape and shape not in INPUTS:
        raise LocalProtocolError(
            f"#{shape} is no input of a flow; there are {', '.join(f'#{name}' for name in INPUTS)}"
        )
    transport = GenkitChatTransport(url, build_input=INPUTS[shape] if shape else None)
    return Opened(transport, _also(urlsplit(url).path))


def _is_address(target: str) -> bool:
    """Tell whether a target is meant as an address, be it a right one: the names of objects have no slash."""
    _, colon, last = target.rpartition(":")
    return "://" in target or bool(colon and "/" in last)


def _also(path: str) -> tuple[str, ...]:
    """Return the path that the Genkit chat specification asks for."""
    return (f"/{path.strip('/')}/stream",) if path.strip("/") else ()

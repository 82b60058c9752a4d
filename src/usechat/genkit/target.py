"""The kind `genkit` of `usechat serve`: a flow at its address, or a Python object."""

import inspect
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urldefrag, urlsplit

import msgspec

from usechat.errors import CannotServe, InvalidAddress
from usechat.input_mapping import read_mapping
from usechat.targets import CommonOptions, OptionGroup, TargetAgent, load_object, upstream_headers

if TYPE_CHECKING:
    from usechat.genkit.inputs import InputBuilder

__all__ = ["GenkitOptions", "GenkitTarget"]


class GenkitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kind; `usechat serve --help` explains them."""

    input: str = ""
    reflection: str | None = None
    upstream_token: str | None = None
    header: tuple[str, ...] = ()
    pass_on: tuple[str, ...] = ()
    send_data: bool = False
    interrupts: Literal["tool", "approval"] = "tool"
    respond_to: tuple[str, ...] = ()
    show_public_errors: bool = False


class GenkitTarget:
    """Serves a flow at its address, such as ``http://127.0.0.1:3400/chatFlow``, or a Python flow, prompt or agent.

    The flow answers at ``/chatFlow/stream``, too. The fragment of the address names what the flow takes: ``#text``,
    ``#history``, ``#messages``, ``#agent`` or ``#stateless-agent``; ``--input`` maps the keys of another object.
    """

    summary = (
        "a flow at http://HOST/FLOW, with #text, #history (default), #messages, #agent or #stateless-agent for what it"
        " takes, or MODULE:NAME of a Python flow, prompt or agent"
    )
    options = GenkitOptions

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        """Return False: an address may be anything, and Python objects are found by their adapter."""
        return False

    def add_options(self, group: OptionGroup) -> None:
        """Add what the flow takes, how its server is called, and what the page gets."""
        add = group.add_argument
        add("--input", metavar="KEY=SOURCE,...",
            help="the source of each key of the input: text (of the message) or body.FIELD, such as"
            " question=text,lang=body.lang")  # fmt: skip
        add("--reflection", metavar="URL",
            help="ask Genkit's reflection server for the schema of the input, such as http://127.0.0.1:3100; it runs"
            " beside a Genkit server in development")  # fmt: skip
        add("--upstream-token", metavar="FILE", help="call the server with the bearer token in this file")
        add("--header", action="append", metavar="'NAME: VALUE'",
            help="add this header to the requests to the server; repeatable")  # fmt: skip
        add("--pass-on", action="append", metavar="NAME",
            help="forward this header of the page's request to the server, such as authorization;"
            " repeatable")  # fmt: skip
        add("--send-data", action="store_true", help="send content other than text and tools as data-genkit-* parts")
        add("--interrupts", choices=("tool", "approval"), metavar="SHAPE",
            help="send an interrupted tool as a client tool that waits for its output (tool), or as one that waits for"
            " an approval (approval) (default: tool)")  # fmt: skip
        add("--respond-to", action="append", metavar="TOOL",
            help="with --interrupts approval: answer this interrupted tool with a response {approved, reason?} instead"
            " of restarting it, as needed for defineInterrupt in JavaScript; repeatable")  # fmt: skip
        add("--show-public-errors", action="store_true",
            help="show the texts of the server's errors on the page, except those with the status"
            " INTERNAL")  # fmt: skip

    def open(self, target: str, options: GenkitOptions, common: CommonOptions) -> TargetAgent:
        """Return a transport for the flow."""
        from usechat.genkit.approvals import respond_to
        from usechat.genkit.transport import PASSED_ON, GenkitChatTransport

        flow, build_input = _flow_and_input(target, options.input)
        if not isinstance(flow, str):
            _require_address(options)
        if options.respond_to and options.interrupts != "approval":
            raise CannotServe("--respond-to is about approvals; give --interrupts approval, too")
        if options.reflection is not None and build_input is not None:
            raise CannotServe("--reflection finds the input of the flow, so name none: leave out --input and #…")
        if options.interrupts == "approval" and not _can_resume(flow, build_input, options.reflection):
            raise CannotServe(
                "--interrupts approval needs an input that passes the answer on to the flow: add #messages, #agent or"
                " #stateless-agent to the address, or give --reflection"
            )
        transport = GenkitChatTransport(
            flow,
            build_input=build_input,
            reflection=options.reflection,
            headers=upstream_headers(options.header, options.upstream_token),
            pass_on=(*PASSED_ON, *options.pass_on),
            idle_timeout=common.idle_timeout,
            show_public_errors=options.show_public_errors,
            send_data=options.send_data,
            interrupts=options.interrupts,
            map_approval=respond_to(options.respond_to) if options.respond_to else None,
        )
        return TargetAgent(
            transport, _also(urlsplit(flow).path if isinstance(flow, str) else getattr(flow, "name", ""))
        )


def _flow_and_input(target: str, mapping: str) -> "tuple[Any, InputBuilder | None]":
    """Return the address or the object that a target names, and the builder that is asked for."""
    from usechat.genkit.inputs import INPUTS, mapped_input

    build_input = mapped_input(read_mapping(mapping)) if mapping else None
    if not _is_address(target):
        return load_object(target), build_input
    url, shape = urldefrag(target)
    if shape and shape not in INPUTS:
        raise InvalidAddress(
            f"#{shape} is not an input of a flow; there are {', '.join(f'#{name}' for name in INPUTS)}"
        )
    if shape and build_input:
        raise CannotServe(f"#{shape} and --input contradict each other; give one of them")
    return url, INPUTS[shape] if shape else build_input


def _can_resume(flow: Any, build_input: "InputBuilder | None", reflection: str | None) -> bool:
    """Return whether the input can hold the answer to an interrupted tool. A schema tells it when it is known."""
    from usechat.genkit.inputs import history_input

    if build_input is None and (reflection is not None or not isinstance(flow, str)):
        return True
    return "map_approval" in inspect.signature(build_input or history_input).parameters


def _require_address(options: GenkitOptions) -> None:
    """Raise for options that only make sense with a server."""
    for name in ("reflection", "upstream_token", "header", "pass_on", "show_public_errors"):
        if getattr(options, name):
            raise CannotServe(f"--{name.replace('_', '-')} is for a flow at an address; this one runs in this process")


def _is_address(target: str) -> bool:
    """Tell whether a target is meant as an address, even a wrong one: the names of objects have no slash."""
    _, colon, last = target.rpartition(":")
    return "://" in target or bool(colon and "/" in last)


def _also(path: str) -> tuple[str, ...]:
    """Return the path that the Genkit chat specification asks for."""
    return (f"/{path.strip('/')}/stream",) if path.strip("/") else ()

"""The types of command-line options: each reads the text of an option, or says in a sentence what would be right."""

import argparse
import ipaddress
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from usechat.errors import CannotServe

if TYPE_CHECKING:
    import ssl

__all__ = [
    "address",
    "addresses",
    "count",
    "days",
    "disconnect",
    "header",
    "header_name",
    "json_object",
    "milliseconds",
    "path",
    "port",
    "rate",
    "seconds",
    "seconds_or_never",
    "speed",
    "unverified_tls",
    "upstream_headers",
]

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""The name of a header (RFC 9110, token)."""
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60}


def port(text: str) -> int:
    """Read a port number; 0 stands for any that is free.

    >>> port("8000")
    8000
    """
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number up to 65535")
    return int(text)


def address(text: str) -> tuple[str, int]:
    """Read an address to listen on: ``HOST:PORT``, or a port of loopback."""
    host, colon, number = text.rpartition(":")
    if colon and not host:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as 127.0.0.1:9464, or a port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", port(number)


def addresses(text: str) -> str:
    """Read addresses and networks, separated by commas, or ``*``."""
    for address in [] if text == "*" else text.split(","):
        try:
            ipaddress.ip_network(address.strip())
        except ValueError:
            raise argparse.ArgumentTypeError(f"{address!r} is no address such as 10.0.0.1 or 10.0.0.0/8") from None
    return text


def path(text: str) -> str:
    """Read the path of a route."""
    if not text.startswith("/") or not text.strip("/") or set(text) & set("{}?# "):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path such as /api/chat")
    return text.rstrip("/")


def count(text: str) -> int:
    """Read a whole number above 0: a ``type`` for ``argparse``, as the others here.

    >>> count("3")
    3
    """
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def seconds_or_never(text: str) -> float | str:
    """Read a number of seconds above 0, or ``never``."""
    return text if text == "never" else seconds(text)


def disconnect(text: str) -> float | str:
    """Read a disconnect policy: ``cancel``, ``continue`` or a number of seconds."""
    if text in ("cancel", "continue"):
        return text
    try:
        return seconds(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor cancel or continue") from None


def days(text: str) -> float:
    """Read a time in days, hours or minutes, ``90d``, ``12h`` or ``30m``; return seconds."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isascii() or not number.isdigit() or not int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90d, 12h or 30m")
    return float(int(number) * _UNITS[unit])


def milliseconds(text: str) -> float:
    """Read a whole number of milliseconds."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of milliseconds")
    return float(text)


def rate(text: str) -> int:
    """Read a number of requests a minute, ``30/min``.

    >>> rate("30/min")
    30
    """
    number, _, unit = text.partition("/")
    if unit != "min" or not number.isascii() or not number.isdigit() or not int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 30/min")
    return int(number)


def header(text: str) -> tuple[str, str]:
    """Read an HTTP header, ``Name: value``."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 'Name: value'")
    return name.strip(), value.strip()


def header_name(text: str) -> str:
    """Read the name of an HTTP header."""
    if not text or not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a header, such as x-tenant")
    return text.lower()


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def speed(text: str) -> float | Literal["max"]:
    """Read a factor above 0, or ``max``."""
    try:
        return "max" if text == "max" else seconds(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, nor max") from None


def upstream_headers(headers: Sequence[str], token_file: str | None) -> dict[str, str]:
    """Return the headers that ``--header 'NAME: VALUE'`` and ``--upstream-token FILE`` name.

    Raises :class:`~usechat.errors.CannotServe` for what is no header, and for a file that holds no token.

    >>> upstream_headers(["x-tenant: acme"], None)
    {'x-tenant': 'acme'}
    """
    pairs = [header.partition(":") for header in headers]
    for name, colon, value in pairs:
        if not colon or not _TOKEN.fullmatch(name) or not value.isprintable() or not value.isascii():
            raise CannotServe(
                f"--header: {name!r} and its value are not a header; write 'NAME: VALUE', such as 'x-key: abc'"
            )
    fields = {name: value.strip() for name, _, value in pairs}
    if token_file is not None:
        fields["authorization"] = f"Bearer {_token(token_file)}"
    return fields


def _token(file: str) -> str:
    try:
        token = Path(file).read_bytes().decode("latin-1").strip()
    except OSError as error:
        raise CannotServe(f"--upstream-token: {file} cannot be read: {error.strerror}") from None
    if not token or not token.isprintable() or not token.isascii():
        raise CannotServe(f"--upstream-token: {file} holds no token of printable characters in one line")
    return token


def unverified_tls() -> "ssl.SSLContext":
    """Return TLS settings that accept every certificate, for ``--insecure``."""
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

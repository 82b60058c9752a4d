"""Evaluates JSONata expressions, in this process or as the program of an evaluator process.

An evaluator (:mod:`~usechat.open_harness.flow.evaluators`) runs this file by its path. So it imports jsonata and the
standard library alone: an evaluator starts in a fraction of the time that ``import usechat`` takes.

The protocol: frames of JSON in both directions, each after its length in four bytes. The first frame that an evaluator
sends is empty: it is ready. A request is ``{texts, names, forgets, values, grown, own}``. The evaluator
keeps ``values`` by name until a request ``forgets`` them, and adds the items of ``grown`` to the ``iterations`` of a
kept value. ``names`` are those that the request's expressions see; ``own``, ``{values, variables}``, adds those of an
item. The answer has ``{"value": …}``, ``{"error": …}`` or, for a value that does not exist, ``{}`` for each text.
"""

import contextlib
import json
import struct
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, BinaryIO, Final

__all__ = ["ABSENT", "compile_expression", "evaluate", "frame_in", "limit_memory", "read_frame", "write_frame"]

ABSENT: Final = object()
"""The value of an expression that leads to nothing, which is not ``null``."""

_KEPT_EXPRESSIONS: Final = 1024
_MEMORY_BYTES: Final = 512 * 1024 * 1024
"""The address space of an evaluator. Python and jsonata take about a tenth of it."""
_LENGTH: Final = struct.Struct(">I")


@lru_cache(maxsize=_KEPT_EXPRESSIONS)
def compile_expression(text: str) -> Any:
    """Return the compiled expression; raise the error of jsonata if the text is not an expression."""
    from jsonata import Jsonata  # type: ignore[import-untyped]  # it has no types

    compiled = Jsonata(text)
    # It would walk through all values at each evaluation, to look for functions. Ours are JSON.
    compiled.set_validate_input(False)
    # It would return null and what does not exist as the same value.
    compiled.set_output_convert_nulls(False)
    return compiled


def evaluate(text: str, values: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
    """Return the value of an expression; what does not exist is :data:`ABSENT`."""
    from jsonata.utils import Utils  # type: ignore[import-untyped]  # it has no types

    compiled = compile_expression(text)
    # Functions read the clock of the current expression; for the library that is the one which was compiled last.
    compiled.CURRENT.jsonata = compiled
    # Bindings are always given: without them the library would write into the compiled expression.
    value = compiled.evaluate(values, variables)
    return ABSENT if value is None else Utils.convert_nulls(value)


def read_frame(stream: BinaryIO) -> bytes | None:
    """Read one frame; ``None`` if the stream has ended."""
    head = _read_exactly(stream, _LENGTH.size)
    return None if head is None else _read_exactly(stream, _LENGTH.unpack(head)[0])


def frame_in(received: bytearray) -> bytes | None:
    """Return the frame that was received in pieces; ``None`` if some are missing."""
    content = memoryview(received)[_LENGTH.size :]
    is_complete = len(received) >= _LENGTH.size and len(content) == _LENGTH.unpack_from(received)[0]
    return bytes(content) if is_complete else None


def write_frame(stream: BinaryIO, content: bytes) -> None:
    """Write one frame."""
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def _read_exactly(stream: BinaryIO, count: int) -> bytes | None:
    content = stream.read(count)
    return content if len(content) == count else None


def _read_number(text: str) -> float:
    """Return a number as JavaScript writes it: 2.0 is 2, so that ``[1..n]`` takes it."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


# Made once: json.loads and json.dumps with options make one for each call. Functions are nothing, as in JavaScript.
_DECODER: Final = json.JSONDecoder(parse_float=_read_number, parse_constant=lambda _name: None)
_ENCODER: Final = json.JSONEncoder(default=lambda _function: None)


def _learn(values: dict[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Take over the new values of a request; return those that its expressions see."""
    if request["forgets"]:
        values.clear()
    values.update(request["values"])
    for name, items in request["grown"].items():
        values[name]["iterations"] += items
    return {name: values[name] for name in request["names"]}


def _answers(request: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    values = {**shared, **request["own"]["values"]}
    answers = [_answer(text, values, request["own"]["variables"]) for text in request["texts"]]
    return f"[{','.join(answers)}]"


def _answer(text: str, values: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Return an answer as JSON. A value that cannot be written fails alone, and not the process."""
    try:
        value = evaluate(text, values, variables)
        return _ENCODER.encode({} if value is ABSENT else {"value": value})
    except MemoryError:
        error = "it needs too much memory"
    except RecursionError:
        error = "it is nested too deeply"
    except Exception as raised:
        error = str(raised)
    return _ENCODER.encode({"error": error})


def limit_memory() -> None:
    """Limit the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    with contextlib.suppress(ValueError, OSError):  # macOS knows no such limit; a lower one may be set already
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _serve() -> None:
    import jsonata  # noqa: F401 (before the first request, whose time is limited)

    limit_memory()
    write_frame(sys.stdout.buffer, b"")
    values: dict[str, Any] = {}
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        request = _DECODER.decode(frame.decode())
        shared = _learn(values, request)
        write_frame(sys.stdout.buffer, _answers(request, shared).encode())


if __name__ == "__main__":
    _serve()

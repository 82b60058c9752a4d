"""The load client: many HTTP/1.1 connections that each ask for a stream, read by `client.c`, which is compiled on use.

It is written in C so that the client's core is never the limit; :attr:`Client.processor_share` shows how busy it is.
"""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from array import array
from pathlib import Path
from time import monotonic, process_time
from typing import Any, Final, Self

from bench.server.load import Pace

_SOURCE: Final = Path(__file__).with_name("client.c")


class NoCompiler(RuntimeError):
    """There is no C compiler, so the server cannot be measured."""


@functools.cache
def library() -> Any:
    """Compile the client and load it; raise ``NoCompiler`` if that is impossible."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoCompiler("the load client is written in C; install a C compiler (cc), or name one with CC")
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory, "client.so")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", compiled, _SOURCE], check=True)
        loaded: Any = ctypes.CDLL(str(compiled))
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    values = ctypes.POINTER(ctypes.POINTER(ctypes.c_int64))
    for name, result, *arguments in (
        ("new", pointer, ctypes.c_int, ctypes.c_int),
        ("open", ctypes.c_int, pointer, number, real),
        ("read", None, pointer, real),
        ("forget", None, pointer),
        ("deltas", number, pointer),
        ("broken", number, pointer),
        ("open_streams", number, pointer),
        ("asking", number, pointer),
        ("refused", ctypes.c_char_p, pointer),
        ("late", number, pointer, values),
        ("first", number, pointer, values),
        ("free", None, pointer),
    ):
        function = getattr(loaded, f"client_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Client:
    """Opens streams, reads them, and notes what arrives. Times are nanoseconds.

    A flood that has come to its end is asked for again.
    """

    def __init__(self, port: int, pace: Pace = "paced") -> None:
        self._library = library()
        self._client = self._library.client_new(port, pace == "flood")
        self._count_from_here()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def deltas(self) -> int:
        """How many deltas have arrived."""
        return int(self._library.client_deltas(self._client))

    @property
    def late(self) -> "array[int]":
        """How late each delta was, of a paced load."""
        return self._times("late")

    @property
    def first(self) -> "array[int]":
        """How long after its request the first delta of each stream came."""
        return self._times("first")

    @property
    def broken(self) -> int:
        """How many connections the server closed."""
        return int(self._library.client_broken(self._client))

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return int(self._library.client_open_streams(self._client))

    @property
    def processor_share(self) -> float:
        """The share of its core that this process took, since everything was forgotten."""
        return (process_time() - self._processor_begin) / max(1e-9, monotonic() - self._begin)

    def open(self, streams: int, *, per_second: float) -> None:
        """Open more streams, evenly spread in time."""
        error = self._library.client_open(self._client, streams, per_second)
        if error:
            raise OSError(error, os.strerror(error))
        self._check()

    def read(self, seconds: float) -> None:
        """Read for so long."""
        self._library.client_read(self._client, seconds)
        self._check()

    def read_until_all_began(self, seconds: float) -> None:
        """Read until each stream has had its first delta, but for at most ``seconds``."""
        end = monotonic() + seconds
        while monotonic() < end and self._library.client_asking(self._client):
            self.read(0.1)

    def forget(self) -> None:
        """Count from zero."""
        self._library.client_forget(self._client)
        self._count_from_here()

    def close(self) -> None:
        """Close all streams."""
        if self._client is not None:
            self._library.client_free(self._client)
            self._client = None

    def _count_from_here(self) -> None:
        self._begin, self._processor_begin = monotonic(), process_time()

    def _times(self, name: str) -> "array[int]":
        values = ctypes.POINTER(ctypes.c_int64)()
        count = getattr(self._library, f"client_{name}")(self._client, ctypes.byref(values))
        times = array("q")
        times.frombytes(ctypes.string_at(values, count * times.itemsize) if count else b"")
        return times

    def _check(self) -> None:
        if refused := self._library.client_refused(self._client):
            raise RuntimeError(f"the server answered {refused!r}")

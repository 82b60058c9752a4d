"""What is stored about runs cannot be changed: stores, managers and readers share it."""

from typing import Any

import msgspec
import pytest

from usechat.runs import open_calls, quotas, run, turns

VALUES: list[Any] = [
    found
    for module in (open_calls, quotas, run, turns)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, msgspec.Struct) and found.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_a_value_cannot_be_changed(kind: Any) -> None:
    assert kind.__struct_config__.frozen

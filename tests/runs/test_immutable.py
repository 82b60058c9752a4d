"""What is stored about runs cannot be changed: stores, managers and readers share it."""

from typing import Any

import msgspec
import pytest

from usechat.runs import open_calls, quotas, run, turns

VALUES: list[Any] = [
    value
    for module in (open_calls, quotas, run, turns)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_a_value_cannot_be_changed(kind: Any) -> None:
    assert kind.__struct_config__.frozen

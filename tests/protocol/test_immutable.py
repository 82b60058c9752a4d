"""Chunks, parts and requests cannot be changed: they are shared by streams, logs and readers."""

from typing import Any

import msgspec
import pytest

from usechat.protocol import chunks, parts, request, sse

VALUES: list[Any] = [
    member
    for module in (chunks, parts, request, sse)
    for member in vars(module).values()
    if isinstance(member, type) and issubclass(member, msgspec.Struct) and member.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_a_value_cannot_be_changed(kind: Any) -> None:
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("make", [lambda: request.Limits(1), request.ChatRequest])  # type: ignore[call-arg]
def test_what_is_given_by_name_cannot_be_given_by_place(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_a_text_part_costs_the_garbage_collector_nothing() -> None:
    assert parts.Text.__struct_config__.gc is False

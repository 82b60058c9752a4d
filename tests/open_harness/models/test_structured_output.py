"""Schemas of structured output: every draft, and references of every form."""

from typing import Any

import pytest

from usechat.open_harness.models.structured_output import (
    provider_schema,
    provider_value,
    schema_problem,
    value_problems,
)

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
TEXT = {"type": "string"}


def with_pair(**more: Any) -> dict[str, Any]:
    """The schema of an object whose pair is a text and a number, as draft 7 writes it."""
    return {"type": "object", "properties": {"pair": {"type": "array", "items": [TEXT, {"type": "number"}]}}, **more}


def test_a_schema_is_read_by_the_draft_that_it_names() -> None:
    assert schema_problem(with_pair(**{"$schema": DRAFT_7})) is None
    assert value_problems(with_pair(**{"$schema": DRAFT_7}), {"pair": ["a", 1]}) == []
    assert value_problems(with_pair(**{"$schema": DRAFT_7}), {"pair": [1, 1]}) == [
        "$.pair[0]: 1 is not of type 'string'"
    ]
    older = {"$schema": DRAFT_4, "type": "number", "minimum": 1, "exclusiveMinimum": True}
    assert schema_problem(older) is None
    assert value_problems(older, 2) == []
    assert len(value_problems(older, 1)) == 1


@pytest.mark.parametrize("more", [{}, {"$schema": "https://example.org/unknown"}])
def test_without_a_draft_that_is_known_it_is_the_newest(more: dict[str, Any]) -> None:
    problem = schema_problem(with_pair(**more))
    assert problem is not None
    assert problem.startswith("is not a JSON schema: ")


def test_a_draft_must_be_a_text() -> None:
    assert schema_problem({"$schema": 5}) == "is not a JSON schema: 5 is not of type 'string'"


@pytest.mark.parametrize(
    ("reference", "more"),
    [
        ("#/$defs/name", {"$defs": {"name": TEXT}}),
        ("#/definitions/a~1b~0c", {"definitions": {"a/b~c": TEXT}}),
        ("#/properties/a%20b", {"properties": {"x": {"$ref": "#/properties/a%20b"}, "a b": TEXT}}),
        ("#/$defs/list/0", {"$defs": {"list": [TEXT]}, "$schema": DRAFT_4}),
        ("#name", {"$defs": {"name": {"$anchor": "name", **TEXT}}}),
        ("#name", {"$schema": DRAFT_7, "definitions": {"name": {"$id": "#name", **TEXT}}}),
        ("https://example.org/s#/$defs/name", {"$id": "https://example.org/s", "$defs": {"name": TEXT}}),
    ],
)
def test_references_are_followed_within_the_schema(reference: str, more: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": reference}}, **more}
    assert schema_problem(schema) is None
    assert provider_schema(schema)["properties"]["x"]["type"] == "string"
    assert len(value_problems(schema, {"x": 1})) == 1
    assert value_problems(schema, {"x": "a"}) == []


@pytest.mark.parametrize(
    "reference", ["#/$defs/no", "#/$defs/list/2", "#no", "https://example.org/x.json", "https://example.org/x#/$defs"]
)
def test_a_reference_that_leads_to_nothing_is_named(reference: str) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": reference}}, "$defs": {"list": {"enum": [1]}}}
    assert schema_problem(schema) == f"has the reference {reference!r}, which leads to nothing within the schema"


def test_what_looks_like_a_reference_in_data_or_as_a_name_is_none() -> None:
    data = {"const": {"$ref": "#/x"}, "default": {"$ref": "#/y"}}
    schema = {"type": "object", "properties": {"$ref": TEXT, "const": {"$ref": "#/$defs/name"}, "v": data}}
    whole = {**schema, "$defs": {"name": TEXT}}
    assert schema_problem(whole) is None
    assert provider_schema(whole)["properties"] == {"$ref": TEXT, "const": TEXT, "v": data}


def test_a_reference_in_a_circle_is_anything() -> None:
    tree = {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#"}}}}
    assert provider_schema(tree)["properties"]["below"] == {"type": "array", "items": {}}


def test_another_root_than_an_object_stands_below_a_key() -> None:
    schema = {"type": "array", "items": TEXT}
    assert provider_schema(schema)["properties"] == {"value": schema}
    assert provider_value(schema, {"value": ["a"]}) == ["a"]
    assert provider_value({"type": "object"}, {"value": 1}) == {"value": 1}

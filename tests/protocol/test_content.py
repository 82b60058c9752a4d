"""Citations and steering messages that a client would refuse, because one of them would end the turn."""

from typing import Any

import pytest

from usechat import parts
from usechat.protocol.chunks import DataChunk, SteeringMessageChunk
from usechat.protocol.content import content_chunk, is_citation
from usechat.protocol.releases import releases_for

URL: dict[str, Any] = {"type": "source", "sourceType": "url", "id": "s", "url": "u"}
DOCUMENT: dict[str, Any] = {"type": "source", "sourceType": "document", "id": "s", "mediaType": "m", "title": "t"}
PLACES = ("startIndex", "endIndex")


def without(source: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name != key}


@pytest.mark.parametrize(
    "citation",
    [
        *({"source": source} for source in (URL, DOCUMENT)),
        *({"source": source | {key: "x"}} for source in (URL, DOCUMENT) for key in ("title", "filename")),
        *({"source": URL, place: index} for place in PLACES for index in (0, 1, 2**53 - 1)),
        {"source": URL, "citedText": "x"},
        {"source": URL, "other": 1},
    ],
)
def test_a_citation_that_clients_accept(citation: Any) -> None:
    assert is_citation(citation)


@pytest.mark.parametrize(
    "citation",
    [
        *(None, "x", [], {}, {"source": None}, {"source": "x"}, {"source": {}}),
        *({"source": URL | {"sourceType": kind}} for kind in ("document", "file", None, 1)),
        *({"source": URL | {"type": kind}} for kind in ("sourc", "source-url", "sources", "")),
        *({"source": without(source, key)} for source in (URL, DOCUMENT) for key in source),
        *({"source": source | {key: 1}} for source in (URL, DOCUMENT) for key in source),
        *({"source": source | {key: 1}} for source in (URL, DOCUMENT) for key in ("title", "filename")),
        *({"source": URL, place: index} for place in PLACES for index in (-1, 2**53, 1.0, True, "0", None)),
        {"source": URL, "citedText": 1},
        {"source": URL, "citedText": None},
        {"source": URL | {"providerMetadata": {}}},
    ],
)
def test_a_citation_that_clients_refuse(citation: Any) -> None:
    assert not is_citation(citation)


def steered(*message_parts: Any, sdk: str = "7") -> Any:
    return content_chunk(parts.SteeringMessage("u", message_parts), releases_for(sdk))


TEXT: dict[str, Any] = {"type": "text", "text": "x"}
FILE: dict[str, Any] = {"type": "file", "mediaType": "m", "url": "u"}


@pytest.mark.parametrize("part", [TEXT, TEXT | {"text": ""}, FILE, FILE | {"filename": "f"}, FILE | {"other": 1}])
def test_a_steering_message_that_clients_accept(part: Any) -> None:
    assert steered(TEXT, part) == (SteeringMessageChunk("u", [TEXT, part]), None)


@pytest.mark.parametrize(
    "part",
    [
        *(None, "x", [], {}),
        *(TEXT | {"type": kind} for kind in ("file", "reasoning", "texts", None)),
        *(without(part, key) for part in (TEXT, FILE) for key in part),
        *(part | {key: 1} for part in (TEXT, FILE) for key in part),
        *(part | {key: {}} for part in (TEXT, FILE) for key in ("filename", "providerMetadata", "providerReference")),
    ],
)
def test_a_steering_message_that_clients_refuse_is_data(part: Any) -> None:
    assert steered(TEXT, part) == (
        DataChunk("data-steering-message", {"id": "u", "parts": [TEXT, part]}),
        "steering-message",
    )


def test_a_steering_message_is_data_for_a_release_that_knows_none() -> None:
    assert steered(TEXT, sdk="7.0.162")[1] == "steering-message"

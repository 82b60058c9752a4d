import base64
from typing import Any

import pytest

from tests.chats.talking import text, user
from usechat.chats.blobs import Blob, FileUrls, extract_files, inline_files, stored_file_ids


def file(url: str, media_type: str = "image/png", kind: str = "file") -> dict[str, Any]:
    return {"type": kind, "mediaType": media_type, "url": url}


def inline(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def test_a_large_file_is_taken_out_once() -> None:
    message = user("u1", "Look", file(inline(b"abc" * 10)), file(inline(b"abc" * 10), kind="reasoning-file"))
    stored, blobs = extract_files(message, 20)
    assert [(blob.media_type, blob.data) for blob in blobs] == [("image/png", b"abc" * 10)]
    assert stored_file_ids(stored) == [blobs[0].id] * 2
    assert extract_files(stored, 20) == (stored, []), "nothing is left to take out"


@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("data:text/plain,a%20long%20text", b"a long text"),
        ("DATA:;base64,YWJjYWJjYWJj", b"abcabcabc"),
        ("data:text/plain;base64,not base64!", None),
        ("data:text/plain;base64,YWJjYWJjYWJ", None),
        ("data:without-a-comma", None),
        ("https://example.com/a,b", None),
    ],
)
def test_a_data_url_is_read_in_each_of_its_forms(url: str, data: bytes | None) -> None:
    message = user("u1", "Look", file(url))
    stored, blobs = extract_files(message, 5)
    assert [blob.data for blob in blobs] == ([] if data is None else [data])
    assert (stored == message) is (data is None)


def test_small_files_and_other_parts_stay() -> None:
    message = user("u1", "data:,a text that looks like a file", file("data:,small"), {"type": "file", "url": None})
    assert extract_files(message, 100) == (message, [])


def test_a_file_within_a_steering_message_is_taken_out() -> None:
    steering = {"type": "steering-message", "id": "s", "parts": [file(inline(b"abc" * 10))]}
    stored, blobs = extract_files(user("u1", "Hi", steering), 20)
    assert stored_file_ids(stored) == [blob.id for blob in blobs] != []


@pytest.mark.parametrize("media_type", ["image/\0", "bild/größe", "image/\ud800"])
def test_an_odd_media_type_is_not_kept(media_type: str) -> None:
    _, (blob,) = extract_files(user("u1", "Hi", file(inline(b"abc" * 10), media_type)), 20)
    assert blob.media_type == "application/octet-stream"


def test_the_same_data_of_another_type_is_another_file() -> None:
    blobs = [extract_files(user("u1", "Hi", file(inline(b"abc" * 10), kind)), 20)[1][0] for kind in ("a/b", "a/c")]
    assert blobs[0].id != blobs[1].id
    assert isinstance(blobs[0], Blob)


def test_urls_of_other_chats_are_left_alone() -> None:
    urls = FileUrls("/api/chat/c1/files/")
    foreign = user("u1", "Hi", file("/api/chat/c2/files/abc"))
    assert urls.read(foreign) == foreign
    assert stored_file_ids(urls.read(user("u1", "Hi", file("/api/chat/c1/files/abc")))) == ["abc"]


def test_a_text_stands_in_place_of_a_file_that_is_not_loaded() -> None:
    missing = file("usechat-file:00", "text/csv")
    steering = {"type": "steering-message", "id": "s", "parts": [{**missing, "filename": "prices.csv"}]}
    message = user("u1", "Hi", missing, steering, file("usechat-file:00", kind="reasoning-file"), file("https://x/y"))
    assert inline_files(message, {})["parts"] == [
        text("[The file (text/csv) is not included.]"),
        {**steering, "parts": [text("[The file prices.csv (text/csv) is not included.]")]},
        file("https://x/y"),
        text("Hi"),
    ]

"""Content encodings, undone piece by piece."""

import gzip
import zlib

import pytest

from usechat.check.sources import decoder_for
from usechat.errors import FalseEncoding

TEXT = b"data: {}\n\n" * 100


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def decoded(encoding: str, *pieces: bytes, maximum: int = 10_000) -> bytes:
    decoder = decoder_for(encoding)
    assert decoder is not None
    return b"".join([decoder.decode(piece, maximum) for piece in pieces])


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", TEXT),
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT, mtime=0)),
        (" GZIP ", gzip.compress(TEXT, mtime=0)),
        ("x-gzip", gzip.compress(TEXT, mtime=0)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
    ],
)
def test_pieces_of_any_size(encoding: str, body: bytes) -> None:
    assert decoded(encoding, body) == TEXT
    assert decoded(encoding, b"", *[body[index : index + 1] for index in range(len(body))]) == TEXT


@pytest.mark.parametrize(
    ("encoding", "body"), [("", TEXT), ("gzip", gzip.compress(TEXT, mtime=0)), ("deflate", zlib.compress(TEXT))]
)
def test_no_more_than_the_limit(encoding: str, body: bytes) -> None:
    assert decoded(encoding, body, maximum=15) == TEXT[:15]


def test_what_comes_after_the_end_is_ignored() -> None:
    assert decoded("gzip", gzip.compress(TEXT, mtime=0), b"more") == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bytes_that_are_something_else(encoding: str) -> None:
    with pytest.raises(FalseEncoding):
        decoded(encoding, b"data: {}\n\n")


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_encodings_that_are_not_asked_for(encoding: str) -> None:
    assert decoder_for(encoding) is None

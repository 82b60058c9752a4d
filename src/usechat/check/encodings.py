"""Content encodings, undone piece by piece: a small body that unpacks to a huge one is never unpacked whole."""

import zlib
from typing import Final, Protocol

__all__ = ["READABLE", "Decoder", "FalseEncoding", "decoder_for"]

READABLE: Final = "gzip, deflate"
"""What to accept: the encodings that the standard library reads on every supported Python."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
_ZLIB_METHOD: Final = 8
"""The low half of the first byte of every zlib header (RFC 1950, 2.2); no encoder begins raw deflate with it."""


class FalseEncoding(Exception):
    """The bytes are not what the content-encoding header says."""


class Decoder(Protocol):
    """Undoes one encoding."""

    def decode(self, data: bytes, maximum: int) -> bytes:
        """Take the next bytes and return at most ``maximum`` decoded ones; what is beyond them is lost."""


def decoder_for(encoding: str) -> Decoder | None:
    """Return a decoder for the value of a content-encoding header; None if it is not one of those asked for."""
    match encoding.strip().lower():
        case "" | "identity":
            return _Identity()
        case "gzip" | "x-gzip":
            return _Inflater(_GZIP)
        case "deflate":
            return _Deflate()
        case _:
            return None


class _Identity:
    def decode(self, data: bytes, maximum: int) -> bytes:
        return data[:maximum]


class _Inflater:
    def __init__(self, window_bits: int) -> None:
        self._inflate = zlib.decompressobj(window_bits).decompress

    def decode(self, data: bytes, maximum: int) -> bytes:
        try:
            return self._inflate(data, maximum)
        except zlib.error as error:
            raise FalseEncoding(str(error)) from None


class _Deflate:
    """The encoding `deflate`, which some servers send without its zlib header."""

    def __init__(self) -> None:
        self._inflater: _Inflater | None = None

    def decode(self, data: bytes, maximum: int) -> bytes:
        if self._inflater is None and data:
            self._inflater = _Inflater(_ZLIB if data[0] & 0x0F == _ZLIB_METHOD else _RAW_DEFLATE)
        return b"" if self._inflater is None else self._inflater.decode(data, maximum)

"""Parse JSON that is still being written, as clients do to show a tool's input while the model streams it.

The text is read as it stands; if it is not JSON yet, it is cut after the last character that a value can end with, what
is open is closed, and it is read again. The scanner below decides where to cut. It is deliberately as forgiving as the
clients' own (``parsePartialJson`` of ``ai``): a character that has no rule in a mode is passed over.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from usechat.errors import InvalidJSON
from usechat.protocol.releases import Release, reads
from usechat.protocol.values import parse_json

__all__ = ["UNDEFINED", "parse_partial_json"]

UNDEFINED: Final = msgspec.UNSET
"""JavaScript's ``undefined``: nothing can be shown yet, which is not the same as ``None`` (JSON's ``null``)."""


class _Move(NamedTuple):
    """What one character does: the next mode, whether the text may be cut after it, a container it opens or closes."""

    mode: str
    keep: bool = False
    opens: str = ""
    closes: bool = False


class _Mode(NamedTuple):
    """The rules of one mode, and the move of every other character (None: it ends the number or word before it)."""

    rules: Mapping[str, _Move]
    otherwise: _Move | None


# Modes. A word mode (``t``, ``tr`` ... ``null``) is named after what has been read of the word.
_VALUE: Final = "a value"
_FIRST_ITEM: Final = "the first item of an array, or its end"
_FIRST_KEY: Final = "the first key of an object, or its end"
_KEY: Final = "the next key"
_INSIDE_KEY: Final = "inside a key"
_COLON: Final = "a colon"
_STRING: Final = "inside a string"
_ESCAPE: Final = "after a backslash"
_HEX_DIGITS: Final = ("1st hex digit", "2nd hex digit", "3rd hex digit", "4th hex digit")
_NUMBER: Final = "inside a number"
_AFTER: Final = "after a value"
"""Stands for the mode of the innermost open container, or the end."""

_AFTER_MEMBER: Final = "after a member of an object"
_AFTER_ITEM: Final = "after an item of an array"
_END: Final = "after the whole value"

_AFTER_IN: Final = {"{": _AFTER_MEMBER, "[": _AFTER_ITEM}
_CLOSER: Final = {"{": "}", "[": "]"}
_WORDS: Final = ("true", "false", "null")
_STRING_MODES: Final = frozenset({_STRING, _ESCAPE, *_HEX_DIGITS})
_COMPLETIONS: Final = {word[:length]: word[length:] for word in _WORDS for length in range(1, len(word) + 1)}
_PLAIN_RUN: Final = re.compile(r'[^"\\]+')


def _stay(mode: str, *, keep: bool = False) -> _Move:
    return _Move(mode, keep)


def _word_modes() -> dict[str, _Mode]:
    return {
        read: _Mode({rest[0]: _Move(read + rest[0], keep=True)} if rest else {}, None)
        for read, rest in _COMPLETIONS.items()
    }


def _hex_modes() -> dict[str, _Mode]:
    after = (*_HEX_DIGITS[1:], _STRING)
    return {
        mode: _Mode(dict.fromkeys("0123456789abcdefABCDEF", _Move(following, keep=following == _STRING)), _stay(mode))
        for mode, following in zip(_HEX_DIGITS, after, strict=True)
    }


@functools.cache
def _modes(*, whole_escapes: bool, empty_arrays: bool) -> dict[str, _Mode]:
    """Return the table of one behaviour: whether \\uXXXX is kept only when complete, and ``[`` alone may be closed."""
    value = {
        '"': _Move(_STRING, keep=True),
        "{": _Move(_FIRST_KEY, keep=True, opens="{"),
        "[": _Move(_FIRST_ITEM, keep=True, opens="["),
        "-": _Move(_NUMBER),
        **dict.fromkeys("0123456789", _Move(_NUMBER, keep=True)),
        **{word[0]: _Move(word[0], keep=True) for word in _WORDS},
    }
    closed = _Move(_AFTER, keep=True, closes=True)
    first_item = value | {"]": closed, "-": _Move(_NUMBER, keep=not empty_arrays)}
    return {
        _VALUE: _Mode(value, _stay(_VALUE)),
        _FIRST_ITEM: _Mode(first_item, _stay(_FIRST_ITEM, keep=not empty_arrays)),
        _FIRST_KEY: _Mode({'"': _Move(_INSIDE_KEY), "}": closed}, _stay(_FIRST_KEY)),
        _KEY: _Mode({'"': _Move(_INSIDE_KEY)}, _stay(_KEY)),
        _INSIDE_KEY: _Mode({'"': _Move(_COLON)}, _stay(_INSIDE_KEY)),
        _COLON: _Mode({":": _Move(_VALUE)}, _stay(_COLON)),
        _STRING: _Mode({'"': _Move(_AFTER, keep=True), "\\": _Move(_ESCAPE)}, _stay(_STRING)),
        _ESCAPE: _Mode({"u": _Move(_HEX_DIGITS[0])} if whole_escapes else {}, _Move(_STRING, keep=True)),
        **_hex_modes(),
        _NUMBER: _Mode(
            {**dict.fromkeys("0123456789", _stay(_NUMBER, keep=True)), **dict.fromkeys("eE-.", _stay(_NUMBER))}, None
        ),
        **_word_modes(),
        _AFTER_MEMBER: _Mode({",": _Move(_KEY), "}": closed}, _stay(_AFTER_MEMBER)),
        _AFTER_ITEM: _Mode({",": _Move(_VALUE), "]": closed}, _stay(_AFTER_ITEM, keep=True)),
        _END: _Mode({}, _stay(_END)),
    }


def parse_partial_json(text: str, release: Release) -> Any:
    """Return the value that this release shows for the text so far; ``UNDEFINED`` where it shows none."""
    try:
        return parse_json(text)
    except InvalidJSON:
        pass
    try:
        return parse_json(_repair(text, release))
    except InvalidJSON:
        return UNDEFINED


def _repair(text: str, release: Release) -> str:
    modes = _modes(
        whole_escapes=reads(release, "partial-json-whole-escapes"),
        empty_arrays=reads(release, "partial-json-empty-arrays"),
    )
    mode, containers, end, position = _VALUE, list[str](), 0, 0
    while position < len(text):
        if mode is _STRING and (run := _PLAIN_RUN.match(text, position)):
            end = position = run.end()
            continue
        character = text[position]
        position += 1
        move = modes[mode].rules.get(character, modes[mode].otherwise)
        if move is None:
            mode = _after(containers)
            move = modes[mode].rules.get(character, _stay(mode))
        if move.closes:
            containers.pop()
        elif move.opens:
            containers.append(move.opens)
        mode = _after(containers) if move.mode is _AFTER else move.mode
        if move.keep:
            end = position
    ending = '"' if mode in _STRING_MODES else _COMPLETIONS.get(mode, "")
    return text[:end] + ending + "".join(_CLOSER[container] for container in reversed(containers))


def _after(containers: list[str]) -> str:
    return _AFTER_IN[containers[-1]] if containers else _END

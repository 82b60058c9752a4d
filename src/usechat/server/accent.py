"""The accent colour of the page: one colour of the operator, readable in both themes.

The page uses the accent in two ways: as letters on its backgrounds (links, the current state), and as the background
of a button with letters on it. WCAG 2.2 asks for a contrast of 4.5 between letters and what is below them. No single
colour has it on white and on near-black, so each theme gets a shade: the colour itself if it can be read there, else
the nearest mix with black (light theme) or white (dark theme) that can. The letters on a button are white or black,
whichever has more contrast: one of them always has at least 4.5.
"""

import re
from typing import Final

import msgspec

from usechat.errors import InvalidSetting

__all__ = ["Accent", "Shade", "accent_of", "contrast"]

CONTRAST: Final = 4.5
"""Of text of any size: WCAG 2.2, success criterion 1.4.3."""
LIGHT_BACKGROUND: Final = (0xF1, 0xF1, 0xF3)
DARK_BACKGROUND: Final = (0x26, 0x26, 0x2B)
"""The backgrounds of the themes on which the accent has the least contrast: ``--muted`` of the style sheet."""
_STEPS: Final = 100
_BLACK: Final = (0, 0, 0)
_WHITE: Final = (255, 255, 255)

Colour = tuple[int, int, int]


class Shade(msgspec.Struct, frozen=True):
    """A colour, and that of the letters on it, as ``#rrggbb``."""

    colour: str
    text: str


class Accent(msgspec.Struct, frozen=True):
    """The shades of the two themes."""

    light: Shade
    dark: Shade


def accent_of(text: str) -> Accent:
    """Return the shades of a colour, which is written as ``#rgb`` or ``#rrggbb``.

    Raises:
        InvalidSetting: it is not written so.

    >>> accent_of("#0f6f68").light
    Shade(colour='#0f6f68', text='#ffffff')
    """
    match = re.fullmatch(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})", text)
    if match is None:
        raise InvalidSetting(f"the accent {text!r} is not a colour; write it as #rrggbb, such as #0f6f68")
    digits = match[1] if len(match[1]) == 6 else "".join(digit * 2 for digit in match[1])
    colour = (int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16))
    return Accent(_shade(colour, LIGHT_BACKGROUND, _BLACK), _shade(colour, DARK_BACKGROUND, _WHITE))


def contrast(one: Colour, other: Colour) -> float:
    """Return the contrast of two colours as WCAG defines it, from 1 to 21.

    >>> contrast((0, 0, 0), (255, 255, 255))
    21.0
    """
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _shade(colour: Colour, background: Colour, end: Colour) -> Shade:
    """Return the shade on the way from a colour to ``end`` that can first be read on a background."""
    mixes = (_mix(colour, end, step / _STEPS) for step in range(_STEPS + 1))
    shade = next(mix for mix in mixes if contrast(mix, background) >= CONTRAST)
    return Shade(_hex(shade), _hex(max(_WHITE, _BLACK, key=lambda letters: contrast(letters, shade))))


def _mix(one: Colour, other: Colour, part: float) -> Colour:
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
    return red, green, blue


def _luminance(colour: Colour) -> float:
    red, green, blue = (
        value / 255 / 12.92 if value / 255 <= 0.04045 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)

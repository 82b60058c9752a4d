"""The accent colour of the page can be read in both themes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat.errors import InvalidSetting
from usechat.server.accent import DARK_BACKGROUND, LIGHT_BACKGROUND, Colour, Shade, accent_of, contrast


def colour_of(text: str) -> Colour:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:], 16)


@pytest.mark.parametrize(
    ("text", "light", "dark"),
    [
        pytest.param("#7c3aed", ("#7c3aed", "#ffffff"), ("#a375f2", "#000000"), id="light for the dark theme"),
        pytest.param("#FF0", ("#707000", "#ffffff"), ("#ffff00", "#000000"), id="dark for the light theme"),
        pytest.param("#000", ("#000000", "#ffffff"), ("#8f8f8f", "#000000"), id="black"),
    ],
)
def test_each_theme_gets_the_nearest_shade_that_can_be_read(
    text: str, light: tuple[str, str], dark: tuple[str, str]
) -> None:
    accent = accent_of(text)
    assert (accent.light, accent.dark) == (Shade(*light), Shade(*dark))


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_every_colour_can_be_read_as_letters_and_below_letters(colour: Colour) -> None:
    accent = accent_of("#{:02x}{:02x}{:02x}".format(*colour))
    for shade, background in ((accent.light, LIGHT_BACKGROUND), (accent.dark, DARK_BACKGROUND)):
        assert contrast(colour_of(shade.colour), background) >= 4.5
        assert contrast(colour_of(shade.colour), colour_of(shade.text)) >= 4.5


@pytest.mark.parametrize("text", ["teal", "#12", "#12345", "0f6f68", "#0f6f68;", "#0f6f6g"])
def test_what_is_no_colour_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="write it as #rrggbb, such as #0f6f68"):
        accent_of(text)

"""A bar chart as SVG, written by hand: no plotting library for a dozen rectangles."""

from collections.abc import Mapping
from html import escape
from typing import Final

_ROW: Final = 26
_LABELS: Final = 410
_BARS: Final = 380
_WIDTH: Final = _LABELS + _BARS + 100
_OURS: Final = "#2563eb"
_OTHERS: Final = "#9ca3af"
_TEXT: Final = "#6b7280"  # readable on a white and on a black page


def bar_chart(title: str, values: Mapping[str, float], *, ours: str) -> str:
    """Draw one bar per value, the smallest first; names that begin with ``ours`` stand out."""
    ranked = sorted(values.items(), key=lambda item: item[1])
    longest = ranked[-1][1]
    rows = [_bar(index, name, value, value / longest, ours) for index, (name, value) in enumerate(ranked)]
    height = _ROW * (len(rows) + 1) + 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" role="img"'
            f' font-family="system-ui, sans-serif" font-size="13" fill="{_TEXT}">',
            f"<title>{escape(title)}</title>",
            f'<text x="8" y="20" font-weight="bold">{escape(title)}</text>',
            *rows,
            "</svg>\n",
        ]
    )


def _bar(index: int, name: str, value: float, share: float, ours: str) -> str:
    top = _ROW * (index + 1) + 8
    width = max(2, round(_BARS * share))
    color, weight = (_OURS, "bold") if name.startswith(ours) else (_OTHERS, "normal")
    return (
        f'<text x="{_LABELS - 8}" y="{top + 15}" text-anchor="end" font-weight="{weight}">{escape(name)}</text>'
        f'<rect x="{_LABELS}" y="{top + 2}" width="{width}" height="{_ROW - 8}" rx="2" fill="{color}"/>'
        f'<text x="{_LABELS + width + 6}" y="{top + 15}" font-weight="{weight}">{value:,.0f}</text>'
    )

"""Plots as plain SVG: bars of one comparison, and lines of growth. Text in, text out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#2563eb", "#9ca3af", "#d97706", "#059669", "#7c3aed", "#dc2626")
WIDTH, LEFT, ROW = 760, 230, 30
STYLE = "font:13px sans-serif;fill:#374151"


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars of (name, value, text beside it); the first is ours."""
    most = max((value for _, value, _ in rows), default=0) or 1
    room = WIDTH - LEFT - 170
    parts = [_text(0, 18, title, bold=True)]
    for at, (name, value, shown) in enumerate(rows):
        y = 32 + at * ROW
        width = room * value / most
        parts.append(_text(LEFT - 8, y + 16, name, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="22" fill="{COLOURS[min(at, 1)]}"/>')
        parts.append(_text(LEFT + width + 6, y + 16, shown))
    return _document(32 + len(rows) * ROW + 8, parts)


def lines(title: str, unit: str, series: Mapping[str, Mapping[int, float]]) -> str:
    """One line per name over the scale, both axes logarithmic: a straight diagonal grows with the work."""
    points = [(x, y) for line in series.values() for x, y in line.items() if y > 0]
    height, top, bottom = 360, 40, 40
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    low, high = math.log(min(ys)) - 0.2, math.log(max(ys)) + 0.2
    span = math.log(xs[-1] / xs[0]) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = 90 + (WIDTH - 330) * math.log(x / xs[0]) / span
        return across, height - bottom - (height - top - bottom) * (math.log(y) - low) / (high - low)

    parts = [_text(0, 18, title, bold=True), _text(0, 36, unit)]
    for x in xs:
        across, _ = place(x, ys[0])
        parts.append(f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{top}" y2="{height - bottom}" stroke="#e5e7eb"/>')
        parts.append(_text(across, height - bottom + 18, f"{x}x", anchor="middle"))
    for at, (name, line) in enumerate(series.items()):
        colour = COLOURS[at % len(COLOURS)]
        placed = [(x, y, *place(x, y)) for x, y in sorted(line.items()) if y > 0]
        path = " ".join(f"{across:.1f},{down:.1f}" for _, _, across, down in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for _, y, across, down in placed:
            parts.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5" fill="{colour}"/>')
            parts.append(_text(across - 4, down - 7, f"{y:,.3g}", anchor="end"))
        y = 48 + at * 20
        parts.append(f'<rect x="{WIDTH - 210}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(WIDTH - 192, y + 11, name))
    return _document(height, parts)


def _text(x: float, y: float, text: str, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{STYLE}"{weight}>{escape(text)}</text>'


def _document(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"

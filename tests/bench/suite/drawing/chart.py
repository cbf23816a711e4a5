# SPDX-License-Identifier: BSD-3-Clause
"""Line charts as SVG: medians as a line, and the range of the runs as a band around it."""
import dataclasses
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 44, 52
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8b5fbf", "#e08e0b", "#00798c", "#6b4226", "#666666")


@dataclasses.dataclass(frozen=True)
class Line:
    name: str
    points: list  # (position on the x axis, low, median, high)


def _decades(low, high):
    return range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)


def _number(value):
    return f"{value:g}" if value < 1000 else f"{value:,.0f}"


class Chart:
    """The y axis is logarithmic; the x axis has one tick a label, at equal distances."""

    def __init__(self, title, x_title, y_title, labels, lines):
        self.title, self.x_title, self.y_title, self.labels, self.lines = title, x_title, y_title, labels, lines
        values = [value for line in lines for _, low, _, high in line.points for value in (low, high)]
        decades = _decades(min(values), max(values))
        self.low_power, self.high_power = decades[0], max(decades[-1], decades[0] + 1)

    def _x(self, place):
        return LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / len(self.labels)

    def _y(self, value):
        share = (math.log10(value) - self.low_power) / (self.high_power - self.low_power)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def _ticks(self):
        between = (1, 2, 5) if self.high_power - self.low_power <= 2 else (1,)
        return [step * 10.0 ** power for power in range(self.low_power, self.high_power) for step in between] + [10.0 ** self.high_power]

    def _text(self, x, y, text, anchor="middle", size=12, extra=""):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{extra}>{escape(text)}</text>'

    def _axes(self):
        right = WIDTH - RIGHT
        for value in self._ticks():
            y = self._y(value)
            yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>'
            yield self._text(LEFT - 8, y + 4, _number(value), "end")
        for place, label in enumerate(self.labels):
            yield self._text(self._x(place), HEIGHT - BOTTOM + 20, label)
        yield self._text((LEFT + right) / 2, HEIGHT - 10, self.x_title)
        middle = (TOP + HEIGHT - BOTTOM) / 2
        yield self._text(16, middle, self.y_title, extra=f' transform="rotate(-90 16 {middle:.1f})"')
        yield self._text(LEFT, 24, self.title, "start", 15)

    def _line(self, number, line):
        colour = COLOURS[number % len(COLOURS)]
        above = [f"{self._x(place):.1f},{self._y(high):.1f}" for place, _, _, high in line.points]
        below = [f"{self._x(place):.1f},{self._y(low):.1f}" for place, low, _, _ in reversed(line.points)]
        yield f'<polygon points="{" ".join(above + below)}" fill="{colour}" fill-opacity="0.15"/>'
        middle = " ".join(f"{self._x(place):.1f},{self._y(median):.1f}" for place, _, median, _ in line.points)
        yield f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for place, _, median, _ in line.points:
            yield f'<circle cx="{self._x(place):.1f}" cy="{self._y(median):.1f}" r="3" fill="{colour}"/>'
        y = TOP + 18 * number
        x = WIDTH - RIGHT + 14
        yield f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
        yield self._text(x + 28, y + 4, line.name, "start")

    def svg(self):
        body = [*self._axes()]
        for number, line in enumerate(self.lines):
            body += self._line(number, line)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a trace as an SVG: trace-svg.py FILE > trace.svg. FILE has requests of OTLP in JSON, one a line."""
import html
import json
import sys

ROW, LEFT, WIDTH, FONT = 22, 230, 560, 12
COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0")


def spans_of(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    yield from scope["spans"]


def rows(spans, parent, depth):
    """Returns (depth, span) of all below a parent, in the order of their beginnings."""
    found = []
    for span in sorted((s for s in spans if s.get("parentSpanId") == parent), key=lambda s: int(s["startTimeUnixNano"])):
        found += [(depth, span), *rows(spans, span["spanId"], depth + 1)]
    return found


def draw(spans):
    ids = {s["spanId"] for s in spans}
    tops = {s.get("parentSpanId") for s in spans if s.get("parentSpanId") not in ids}
    lines = [row for top in sorted(tops, key=str) for row in rows(spans, top, 0)]
    begin = min(int(s["startTimeUnixNano"]) for s in spans)
    whole = max(int(s["endTimeUnixNano"]) for s in spans) - begin
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{ROW * len(lines) + 12}" '
           f'font-family="sans-serif" font-size="{FONT}"><rect width="100%" height="100%" fill="#ffffff"/>']
    for i, (depth, span) in enumerate(lines):
        took = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        x, y = LEFT + WIDTH * (int(span["startTimeUnixNano"]) - begin) / whole, 6 + ROW * i
        width = max(1.5, WIDTH * took / whole)
        out += [f'<text x="{8 + 14 * depth}" y="{y + 15}" fill="#222222">{html.escape(span["name"].removeprefix("npugraph.v1."))}</text>',
                f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW - 7}" rx="2" fill="{COLOURS[depth % len(COLOURS)]}"/>',
                f'<text x="{x + width + 5:.1f}" y="{y + 15}" fill="#555555">{took / 1000:.1f} µs</text>']
    return "\n".join([*out, "</svg>"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(draw(list(spans_of(sys.argv[1]))))

# SPDX-License-Identifier: Apache-2.0
"""The table and the picture of a comparison, from what bench/compare/run measured.

A result is a dict: engine, variant (weights and form), version, why (it could not be measured; else None), check (text on
the logits), and turns: a list of {"prompt": tokens/s, "1": tokens/s of one sequence, ...}.
"""
import statistics
from xml.sax.saxutils import escape

OURS = "npugraphd"
COLOURS = {"npugraphd": "#3b82f6", "llama.cpp": "#e08a2e", "OpenVINO": "#2fa37c", "PyTorch": "#a371c7"}


def columns(results):
    """Names of what was measured: the prompt, then numbers of sequences."""
    names = {name for r in results for turn in r["turns"] for name in turn}
    return [n for n in ["prompt"] if n in names] + sorted(names - {"prompt"}, key=int)


def spread(result, column):
    """(median, least, most) of the turns, or None."""
    values = [turn[column] for turn in result["turns"] if column in turn]
    return (statistics.median(values), min(values), max(values)) if values else None


def median(result, column):
    found = spread(result, column)
    return found[0] if found else None


def best(results, column, ours):
    """The fastest result of the column: of ours, or of all others; None if nothing was measured."""
    found = [r for r in results if (r["engine"] == OURS) == ours and spread(r, column)]
    return max(found, key=lambda r: median(r, column)) if found else None


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def title(column, prompt):
    if column == "prompt":
        return f"prompt of {prompt}"
    return "1 sequence" if column == "1" else f"{column} sequences"


def cell(result, column):
    found = spread(result, column)
    if not found:
        return "-"
    return number(found[0]) + (f" ({number(found[1])}..{number(found[2])})" if len(result["turns"]) > 1 else "")


def ratio(results, column):
    ours, other = best(results, column, True), best(results, column, False)
    if not ours or not other:
        return "-"
    return f"{median(ours, column) / median(other, column):.2f} ({other['engine']})"


def label(result):
    return f"{result['engine']}, {result['variant']}"


def table(results, prompt):
    """Markdown: tokens per second, a row for each result, and ratios to the best other engine."""
    names = columns(results)
    lines = ["| tokens/s | " + " | ".join(title(n, prompt) for n in names) + " |", "| --- |" + " --- |" * len(names)]
    for r in results:
        if r["turns"]:
            lines.append(f"| {label(r)} | " + " | ".join(cell(r, n) for n in names) + " |")
    lines.append(f"| {OURS} / the best other | " + " | ".join(ratio(results, n) for n in names) + " |")
    return "\n".join(lines)


def tables(results, prompt):
    """A table for each quantised form, and one for all others: they do not read as many bytes."""
    def form(result):
        return result["variant"].partition("-")[0] if result["variant"].startswith("q") else ""

    groups = [[r for r in results if form(r) == f] for f in ["", *sorted({form(r) for r in results if form(r)}, reverse=True)]]
    return "\n\n".join(table(g, prompt) for g in groups if any(r["turns"] for r in g))


def of_engine(results, engine, column):
    """The fastest variant of an engine in the column, or None."""
    found = [r for r in results if r["engine"] == engine and spread(r, column)]
    return max(found, key=lambda r: median(r, column)) if found else None


def summary(results, prompt):
    """Markdown: medians of the fastest variant of each engine, and ratios to the best other engine."""
    names = columns(results)
    lines = ["| tokens/s | " + " | ".join(title(n, prompt) for n in names) + " |", "| --- |" + " --- |" * len(names)]
    for engine in COLOURS:
        found = [of_engine(results, engine, n) for n in names]
        if any(found):
            lines.append(f"| {engine} | " + " | ".join(number(median(r, n)) if r else "-" for r, n in zip(found, names)) + " |")
    lines.append(f"| {OURS} / the best other | " + " | ".join(ratio(results, n) for n in names) + " |")
    return "\n".join(lines)


def notes(results):
    """One line for each result: its version and its check, or why it is missing."""
    return "\n".join(f"- {label(r)}: " + (f"not measured: {r['why']}" if r["why"] else f"{r['version']}; {r['check']}")
                     for r in results)


# ---- picture ---------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 330, 12, 64, 34
# Greys and a blue that can be read on white and on black, since a page's theme need not be the system's.
STYLE = """text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#737c86}
.title{font-size:15px;font-weight:600}.bar{font-size:11px}.ours{font-weight:700;fill:#3b82f6}
.axis,.spread{stroke:#8c959f;stroke-width:1}"""


def rounded(x, y, width, height, colour):
    """A bar whose upper corners are round."""
    r = min(3, width / 2, height)
    return (f'<path d="M{x:.1f} {y + height:.1f}v{r - height:.1f}q0 {-r:.1f} {r:.1f} {-r:.1f}h{width - 2 * r:.1f}'
            f'q{r:.1f} 0 {r:.1f} {r:.1f}v{height - r:.1f}z" fill="{colour}"/>')


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def words(x, y, text, kind="", anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def bar(result, column, x, width, scale):
    base = HEIGHT - BOTTOM
    middle, least, most = spread(result, column)
    kind = "bar ours" if result["engine"] == OURS else "bar"
    parts = [rounded(x, base - middle * scale, width, middle * scale, COLOURS.get(result["engine"], "#8c959f"))]
    if most > least:
        parts.append(line(x + width / 2, base - least * scale, x + width / 2, base - most * scale, "spread"))
    parts.append(words(x + width / 2, base - most * scale - 5, number(middle), kind))
    return parts


def picture(results, prompt, caption):
    """SVG of the fastest variant of each engine, without fonts or scripts of its own; fits dark and light pages."""
    names = columns(results)
    names = names[1:] + names[:1] if names[:1] == ["prompt"] else names
    engines = [e for e in COLOURS if any(of_engine(results, e, n) for n in names)]
    top = max(spread(r, n)[2] for r in results for n in names if spread(r, n))
    scale = (HEIGHT - TOP - BOTTOM - 20) / top
    group = (WIDTH - 2 * LEFT) / len(names)
    width = min(34, (group - 16) / len(engines))
    parts = [words(LEFT, 20, caption, "title", "start")]
    x = LEFT
    for engine in engines:
        parts.append(f'<rect x="{x}" y="34" width="11" height="11" rx="2" fill="{COLOURS[engine]}"/>')
        parts.append(words(x + 16, 44, engine, "ours" if engine == OURS else "", "start"))
        x += 40 + 7 * len(engine)
    for i, name in enumerate(names):
        x = LEFT + i * group + (group - width * len(engines)) / 2
        for k, engine in enumerate(engines):
            result = of_engine(results, engine, name)
            if result:
                parts += bar(result, name, x + k * width + 1.5, width - 3, scale)
        parts.append(words(LEFT + (i + 0.5) * group, HEIGHT - 12, title(name, prompt)))
    parts.append(line(LEFT, HEIGHT - BOTTOM, WIDTH - LEFT, HEIGHT - BOTTOM, "axis"))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="{escape(caption)}">\n<style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n")

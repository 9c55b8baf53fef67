"""`make bench-report`: the tables of docs/benchmarks.md and its plots, from the raw results alone.

Between `<!-- bench:case -->` and `<!-- /bench:case -->` everything is generated; the rest is written by hand. A case
that the document does not know yet is added at its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench import svg
from bench.measure import Figure, Row, Sample, summary
from bench.results import ROOT, Result, load

DOCUMENT = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "benchmarks"
LINES = 6  # of a plot
SPENT = ("s", "ms", "MiB", "GiB", "cores")  # units of what must not grow faster than the work


def write() -> None:
    """Bring document and plots up to the results."""
    text = DOCUMENT.read_text() if DOCUMENT.exists() else "# Benchmarks\n"
    PLOTS.mkdir(exist_ok=True)
    for old in PLOTS.glob("*.svg"):
        old.unlink()
    for found in load():
        text = placed(text, found.case, section(found, PLOTS))
    DOCUMENT.write_text(text)


def placed(text: str, case: str, generated: str) -> str:
    """The document with the case's part replaced, or added at its end."""
    begin, end = f"<!-- bench:{case} -->", f"<!-- /bench:{case} -->"
    block = f"{begin}\n\n{generated}\n{end}"
    if begin not in text:
        return f"{text.rstrip()}\n\n## {case}\n\n{block}\n"
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, text, flags=re.DOTALL)


def section(found: Result, plots: Path) -> str:
    """A case's tables, and its plots as files in `plots`."""
    parts = [f"{found.what}\n"]
    for group in dict.fromkeys(sample.group for sample in found.samples):
        own = [sample for sample in found.samples if sample.group == group]
        parts.append(_comparison(found.case, group, own, plots))
    if len({figure.scale for figure in found.figures} | {sample.scale for sample in found.samples}) > 1:
        parts.append(_growth(found, plots))
    elif found.figures:
        parts.append(_figures(found.figures))
    at = found.machine
    libraries = ", ".join(f"{name} {at[name]}" for name in at if name in ("pyspark", "polars", "pyarrow", "duckdb"))
    code = f"{found.commit}{' with changes' if found.dirty else ''}"
    parts.append(
        f"<sub>{found.date} at {code}; {at['cpu']}, {at['cores']} cores, {at['memory_gib']} GiB, Linux {at['kernel']}; "
        f"Python {at['python']}, {at['java']}, {libraries}. Raw: "
        f"[{found.case}.json](../benchmarks/results/{found.case}.json)</sub>\n"
    )
    return "\n".join(parts)


def _comparison(case: str, group: str, samples: Sequence[Sample], plots: Path) -> str:
    scales = sorted({sample.scale for sample in samples})
    by_scale = {scale: summary([s for s in samples if s.scale == scale]) for scale in scales}
    out = [f"**{group}**\n"]
    head = "| | min s | median s | a second, by the median | CPU s | memory MiB | times the first |"
    for scale in scales:
        if len(scales) > 1:
            amount, unit = next((s.amount, s.unit) for s in samples if s.scale == scale)
            out.append(f"{scale}x ({amount:,.0f} {unit}):\n")
        out += [head, "|---" * 7 + "|", *map(_line, by_scale[scale]), ""]
    name = f"{case}-{re.sub('[^a-z0-9]+', '-', group.lower()).strip('-')}.svg"
    if len(scales) > 1:
        series = {
            row.contender: {s: r.median_s for s in scales for r in by_scale[s] if r.contender == row.contender}
            for row in by_scale[scales[0]]
        }
        (plots / name).write_text(svg.lines(f"{case}: {group}", "seconds (median) at so many times the work", series))
    elif len(by_scale[scales[0]]) > 1:
        rows = by_scale[scales[0]]
        shown = [(row.contender, row.rate, f"{_short(row.rate)} {row.unit}/s") for row in rows]
        (plots / name).write_text(svg.bars(f"{case}: {group}", shown))
    if (plots / name).exists():
        out.append(f"![{group}](benchmarks/{name})\n")
    return "\n".join(out)


def _line(row: Row) -> str:
    return (
        f"| {row.contender} | {row.min_s:.3f} | {row.median_s:.3f} | {_short(row.rate)} {row.unit} | {row.cpu_s:.2f} | "
        f"{row.memory_bytes / (1 << 20):,.0f} | {row.times:.2f} |"
    )


def _growth(found: Result, plots: Path) -> str:
    """Our own times and memory, and every figure, by scale; a plot of what is spent, in multiples of 1x."""
    rows = {**_own_by_scale(found.samples), **_figures_by_scale(found.figures)}
    scales = sorted({scale for row in rows.values() for scale in row})
    lines = [f"| | | {' | '.join(f'{scale}x' for scale in scales)} |", "|---" * (len(scales) + 2) + "|"]
    for (name, unit), row in rows.items():
        values = " | ".join(f"{row[scale]:,.4g}" if scale in row else "" for scale in scales)
        lines.append(f"| {name} | {unit} | {values} |")
    first = scales[0]
    work = {"the work": {scale: scale / first for scale in scales}}
    grown = [(name, row) for (name, unit), row in rows.items() if unit in SPENT and row.get(first)]
    lines.append("")
    for number, at in enumerate(range(0, len(grown), LINES - 1), 1):
        shown = {name: {s: value / row[first] for s, value in row.items()} for name, row in grown[at : at + LINES - 1]}
        name = f"{found.case}-by-work-{number}.svg"
        (plots / name).write_text(svg.lines(found.case, f"times what it is at {first}x", {**work, **shown}))
        lines += [f"![{found.case}, {number}](benchmarks/{name})", ""]
    return "\n".join(lines)


def _own_by_scale(samples: Sequence[Sample]) -> dict[tuple[str, str], dict[int, float]]:
    """{(name, unit): {scale: value}} of the time and memory of each group's first contender, which is ours."""
    first = {sample.group: sample.contender for sample in reversed(samples)}
    own = [sample for sample in samples if sample.contender == first[sample.group]]
    rows: dict[tuple[str, str], dict[int, float]] = {}
    for group, scale in dict.fromkeys((sample.group, sample.scale) for sample in own):
        (row,) = summary([sample for sample in own if (sample.group, sample.scale) == (group, scale)])
        rows.setdefault((f"{group}: time", "s"), {})[scale] = row.median_s
        rows.setdefault((f"{group}: memory", "MiB"), {})[scale] = row.memory_bytes / (1 << 20)
    return rows


def _figures_by_scale(figures: Sequence[Figure]) -> dict[tuple[str, str], dict[int, float]]:
    rows: dict[tuple[str, str], dict[int, float]] = {}
    for figure in figures:
        rows.setdefault((figure.name, figure.unit), {})[figure.scale] = figure.value
    return rows


def _figures(figures: Sequence[Figure]) -> str:
    lines = ["| | value | aim | |", "|---|---|---|---|"]
    for figure in figures:
        aim, verdict = "", ""
        if figure.aim is not None:
            reached = figure.value <= figure.aim if figure.better == "less" else figure.value >= figure.aim
            aim = f"{'<=' if figure.better == 'less' else '>='} {figure.aim:,.4g}"
            verdict = "reached" if reached else "not reached"
        lines.append(f"| {figure.name} | {figure.value:,.4g} {figure.unit} | {aim} | {verdict} |")
    return "\n".join([*lines, ""])


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


if __name__ == "__main__":
    write()

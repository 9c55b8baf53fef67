"""What the other tenant noticed, phase by phase, beside the calm of the same run. Pure.

Its rows wait for its own upstream first, whose files say late what is complete when all is slow (it is on the same
machine here): so a row's delay is also told since they have said so, which is what the platform answers for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from support.hostile.good import Sample
from tistream_verify.lag import Delays, LagSample, Promise, beyond_promises

WHATS = ("PullTenant", "PullTable", "status")
PROMISED = "PullTenant since promised"
SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the run: its begin and end (wall clock, milliseconds), and the attack."""

    name: str
    begin_ms: int
    end_ms: int
    answers: dict[str, int]  # to the hostile tenant, by kind and status
    cpu_s: dict[str, float]  # processor time that each service took
    lag_worst_s: float = 0.0  # as status told, of the other tenant
    busy: float = 0.0  # of the machine's processors, this share
    clients_s: float = 0.0  # processor time that the hostile one's clients took, but for who scattered junk


def figures(phases: Sequence[Phase], samples: Iterable[Sample], promises: Sequence[Promise]) -> list[dict[str, Any]]:
    """For each phase the number of events, and quantiles of their delays in milliseconds."""
    held = list(samples)
    pulled = [LagSample(one.at_ms, one.lag_ms, 1) for one in held if one.what == WHATS[0]]
    held += [Sample(PROMISED, one.at_ms, one.lag_ms) for one in beyond_promises(pulled, promises)]
    out = []
    for phase in phases:
        row: dict[str, Any] = {"phase": phase.name, "seconds": round((phase.end_ms - phase.begin_ms) / 1000, 1)}
        for what in (*WHATS, PROMISED):
            delays = Delays()
            for sample in held:
                if sample.what == what and phase.begin_ms <= sample.at_ms < phase.end_ms:
                    delays.add(sample.lag_ms)
            row[what] = {"count": delays.count, **{f"p{share * 100:g}": delays.quantile_ms(share) for share in SHARES}}
        told = {"lag_worst_s": phase.lag_worst_s, "busy": phase.busy, "answers": phase.answers}
        out.append({**row, **told, "cpu_s": phase.cpu_s, "clients_s": phase.clients_s})
    return out


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| phase | s | rows pulled | promised to arrival, ms: p50 / p95 / p99 | commit to arrival, ms | one table's | "
        "status answered, ms | worst lag in status, s | machine busy | clients' processor time, s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shown = [" / ".join(str(row[what][f"p{share * 100:g}"]) for share in SHARES) for what in (PROMISED, *WHATS)]
        lines.append(
            f"| {row['phase']} | {row['seconds']} | {row['PullTenant']['count']} | {' | '.join(shown)} "
            f"| {row['lag_worst_s']:.1f} | {row['busy']:.0%} | {row['clients_s']:.1f} |"
        )
    return "\n".join(lines)

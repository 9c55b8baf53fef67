"""Evaluates a chaos run from what was recorded while it ran. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from support.chaos.plan import EVERYTHING, Fault, Kind
from tistream_verify.lag import LagSample, recovered_ms

LATE_MS = 5_000
_LONG_SECONDS = 30.0  # longer than any lease
_SPARK = {"jvm", "worker", "sorter", "up", EVERYTHING}


@dataclass(frozen=True, slots=True)
class StatusSeen:
    """One answer of the tenant's status."""

    at_ms: int
    lag_seconds: float
    held_by: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was injected, with its times by the wall clock."""

    fault: Fault
    begin_ms: int
    end_ms: int
    calm_ms: int  # when the next fault began, or the run ended
    statuses: tuple[StatusSeen, ...] = ()

    def recovered(self, samples: Sequence[LagSample]) -> int | None:
        """The time from the end of the fault until the lag stayed below 5 s; None if it never did."""
        return recovered_ms(samples, self.end_ms, self.calm_ms, LATE_MS)

    def explains(self, trace: Mapping[str, Any]) -> bool:
        """Whether a logged exception is what Spark's own client says when its JVM or a worker of it was struck."""
        if not trace["ts"]:
            return False
        at_ms = datetime.fromisoformat(trace["ts"]).timestamp() * 1000
        if trace["service"] != "sorter" or not self.begin_ms <= at_ms <= self.calm_ms:
            return False
        if self.fault.kind == Kind.FULL:
            return "pyspark" in trace["traceback"] and "No space left" in trace["traceback"]  # Spark's scratch files
        of_spark = "py4j" in trace["traceback"] or "pyspark" in trace["traceback"]
        return of_spark and not _SPARK.isdisjoint(self.fault.targets)

    def worst_lag_ms(self, samples: Sequence[LagSample]) -> int:
        """The highest lag that the fault caused."""
        return max((s.lag_ms for s in samples if self.begin_ms <= s.at_ms <= self.calm_ms), default=0)


@dataclass(slots=True)
class Outcome:
    """The results of a run. `problems` is empty if the run has passed."""

    seed: int
    rows_per_s: int
    recover_s: float
    seconds: float = 0.0
    struck: list[Struck] = field(default_factory=list)
    samples: list[LagSample] = field(default_factory=list)
    verify: dict[str, Any] = field(default_factory=dict)
    not_run: list[str] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)  # log lines that carry a traceback
    manifests: int = 0  # read again at the end, each held against the one before it
    seals: int = 0  # of them: by which a task was split or merged
    problems: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Evaluate the records, and add to the problems."""
        for struck in self.struck:
            recovered = struck.recovered(self.samples)
            if recovered is None:
                self.problems.append(f"{struck.fault}: the lag did not come back under 5 s")
            elif recovered > self.recover_s * 1000:
                detail = f"the lag was back under 5 s after {recovered / 1000:.1f} s"
                self.problems.append(f"{struck.fault}: {detail}, {self.recover_s:g} s are allowed")
            self._judge_statuses(struck)
            away = struck.fault.kind == Kind.PAUSE and set(struck.fault.targets) == {"meta"}
            long = struck.fault.seconds >= _LONG_SECONDS
            if away and long and struck.worst_lag_ms(self.samples) > self.recover_s * 1000:
                self.problems.append(f"{struck.fault}: data did not flow meanwhile")
        for trace in self.traces:
            if not any(struck.explains(trace) for struck in self.struck):
                where = f"{trace['ts']} {trace['service']} {trace['message']}"
                self.problems.append(
                    f"an exception that nobody foresaw: {where}\n{trace['traceback'][-3_000:]}".replace("\\n", "\n")
                )
        if not self.verify.get("clean", False):
            first = self.verify.get("first_violations", ["no report"])
            self.problems.append(f"verify: {self.verify.get('violations')} {' | '.join(first[:3])}")

    def _judge_statuses(self, struck: Struck) -> None:
        for seen in struck.statuses:
            if seen.lag_seconds > LATE_MS / 1000 and seen.held_by is None:
                self.problems.append(f"{struck.fault}: status says lag {seen.lag_seconds} and nothing holds it")
                break
        if struck.fault.kind not in (Kind.FULL, Kind.READ_ONLY):
            return
        if "data" in struck.fault.targets:  # what is late then is what the stores could not push, and status says so
            return
        during = [seen for seen in struck.statuses if struck.begin_ms + 7_000 < seen.at_ms <= struck.end_ms]
        told_late = any(seen.lag_seconds > LATE_MS / 1000 for seen in during)
        if not told_late and struck.worst_lag_ms(self.samples) <= LATE_MS:
            return  # nothing was held up: a sorter may need nothing of a disk that is full
        named = ("No space left", "Read-only file system", "cannot write", "disk is full", "XMinioStorageFull")
        if not any(any(name in str(seen.held_by) for name in named) for seen in during):
            said = sorted({str(seen.held_by) for seen in during})
            self.problems.append(f"{struck.fault}: no status named the disk: {said[:3] or 'none was told'}")

    def groups(self) -> list[tuple[str, int, float, float | None, float | None]]:
        """Per group of faults: how many, the worst lag, and the recovery's median and maximum, in seconds."""
        by_group: dict[str, list[Struck]] = defaultdict(list)
        for struck in self.struck:
            by_group[struck.fault.group].append(struck)
        rows = []
        for group, members in sorted(by_group.items()):
            times = [member.recovered(self.samples) for member in members]
            known = [time / 1000 for time in times if time is not None]
            worst = max(member.worst_lag_ms(self.samples) for member in members) / 1000
            whole = len(known) == len(times)
            rows.append((group, len(members), worst, median(known) if known else None, max(known) if whole else None))
        return rows

    def table(self) -> str:
        """The groups in Markdown."""
        lines = ["| fault | times | worst lag, s | back under 5 s: median, s | max, s |", "|---|---|---|---|---|"]
        for group, times, worst, mid, most in self.groups():
            lines.append(f"| {group} | {times} | {worst:.1f} | {_shown(mid)} | {_shown(most)} |")
        return "\n".join(lines)

    def summary(self) -> str:
        """The results of the run in Markdown."""
        report = self.verify
        pulls = report.get("other_pulls", {})
        lines = [
            self.table(),
            "",
            f"{len(self.struck)} faults in {self.seconds:.0f} s at {self.rows_per_s} rows/s (seed {self.seed}): "
            f"{report.get('rows', 0)} rows and {report.get('ddls', 0)} DDLs pulled, "
            f"{report.get('events_compared_with_truth', 0)} held against {report.get('truth_lines_compared', 0)} truth "
            f"lines; {pulls.get('events', 0)} events in {pulls.get('pages', 0)} other pulls; "
            f"violations: {report.get('violations') or 'none'}; "
            f"{self.manifests} manifests, {self.seals} of them seals, held against each other.",
            *self.not_run,
            *(f"PROBLEM {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The results without the samples."""
        return {
            "seed": self.seed,
            "rows_per_s": self.rows_per_s,
            "seconds": round(self.seconds, 1),
            "faults": [
                {
                    "fault": str(struck.fault),
                    "begin_ms": struck.begin_ms,
                    "end_ms": struck.end_ms,
                    "recovered_ms": struck.recovered(self.samples),
                    "worst_lag_ms": struck.worst_lag_ms(self.samples),
                    "held_by": [asdict(seen) for seen in struck.statuses if seen.held_by][:20],
                }
                for struck in self.struck
            ],
            "verify": self.verify,
            "manifests": self.manifests,
            "seals": self.seals,
            "not_run": self.not_run,
            "problems": self.problems,
        }


def _shown(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"

"""Bench: what a case is given to measure with. Times stand beside a reference of the same run, and are never judged."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench import proc_tree
from bench.remote import Remote

Better = Literal["less", "more"]


class Disagreement(Exception):
    """Contenders gave different answers: their times mean nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one contender: wall and processor seconds, and the most memory (bytes) that its processes held."""

    group: str
    contender: str
    scale: int
    round: int
    amount: float
    unit: str
    wall_s: float
    cpu_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `aim` is what was to be reached, if anything."""

    name: str
    value: float
    unit: str
    aim: float | None
    better: Better
    scale: int


class Bench:
    """Collects what a case measures.

    tmp: a folder that is removed afterwards. scales: (1,), or (1, 4, 16) if growth is measured; `usual` is the one at
    which the work is what the case names. rounds: how many, where the case does not say.
    """

    def __init__(self, tmp: Path, scales: tuple[int, ...] = (1,), rounds: int = 5, usual: int = 1) -> None:
        assert usual in scales
        self.tmp, self.scales, self.rounds, self.usual = tmp, scales, rounds, usual
        self.samples: list[Sample] = []
        self.figures: list[Figure] = []

    def sized(self, work: int, scale: int) -> int:
        """How much of the case's usual `work` there is at a scale."""
        return work * scale // self.usual

    def compare(
        self,
        group: str,
        contenders: Mapping[str, Callable[[], Any]],
        rounds: int | None = None,
        amount: float = 1,
        unit: str = "runs",
        scale: int = 1,
        reset: Callable[[], object] = lambda: None,
        warm: bool = True,
    ) -> None:
        """Call each contender once to warm it (unless not `warm`: it has been called before), then let them take
        turns, so that a noisy machine is noisy for all.

        `amount` of `unit` is what one call works through. `reset` runs before each call and is not timed. Memory is
        that of a Remote's own process tree, or of this process without its Remotes.
        """
        print(f"\n{group}" + (f", {scale}x" if len(self.scales) > 1 else ""))
        for called in contenders.values() if warm else ():
            reset()
            called()
        remotes = frozenset(called.pid for called in contenders.values() if isinstance(called, Remote))
        for number in range(rounds or self.rounds):
            for name, called in contenders.items():
                reset()
                pid, others = (called.pid, frozenset[int]()) if isinstance(called, Remote) else (os.getpid(), remotes)
                cpu = proc_tree.cpu_seconds(pid, others)
                with proc_tree.PeakMemory(pid, others) as peak:
                    began = time.perf_counter()
                    called()
                    wall = time.perf_counter() - began
                cpu = proc_tree.cpu_seconds(pid, others) - cpu
                self.samples.append(Sample(group, name, scale, number, amount, unit, wall, cpu, peak.bytes))
        for line in summary([s for s in self.samples if (s.group, s.scale) == (group, scale)]):
            print(f"  {line}")

    def figure(
        self, name: str, value: float, unit: str, aim: float | None = None, better: Better = "less", scale: int = 1
    ) -> None:
        """Note one number, beside what is aimed at where the work is the usual one."""
        aim = aim if len(self.scales) == 1 or scale == self.usual else None
        self.figures.append(Figure(name, value, unit, aim, better, scale))
        print(f"  {name}: {value:,.4g} {unit}" + (f" (aim: {aim:,.4g})" if aim is not None else ""))

    @staticmethod
    def agree(answers: Mapping[str, object]) -> None:
        """Raise Disagreement unless all contenders gave the same answer (a number of rows, a hash)."""
        if len({repr(answer) for answer in answers.values()}) > 1:
            raise Disagreement(f"answers differ: {dict(answers)}")

    @contextmanager
    def remote(self, factory: Callable[..., Callable[..., Any]], *args: Any, **env: str) -> Iterator[Remote]:
        """A contender in its own process, ended afterwards."""
        called = Remote(factory, *args, env=env)
        try:
            yield called
        finally:
            called.close()


@dataclass(frozen=True, slots=True)
class Row:
    """One contender's rounds, summed up."""

    contender: str
    min_s: float
    median_s: float
    cpu_s: float
    memory_bytes: int
    rate: float  # amount a second, by the median
    unit: str
    times: float  # how many times the first contender's median

    def __str__(self) -> str:
        return (
            f"{self.contender:28} min {self.min_s:8.3f} s  median {self.median_s:8.3f} s  cpu {self.cpu_s:7.2f} s  "
            f"{self.memory_bytes / (1 << 20):7,.0f} MiB  {self.rate:14,.0f} {self.unit}/s  {self.times:6.2f}x"
        )


def summary(samples: list[Sample]) -> list[Row]:
    """Rows of one group at one scale, in the order in which contenders came."""
    names = list(dict.fromkeys(sample.contender for sample in samples))
    medians = {name: statistics.median(s.wall_s for s in samples if s.contender == name) for name in names}
    rows = []
    for name in names:
        own = [sample for sample in samples if sample.contender == name]
        median = medians[name]
        rows.append(
            Row(
                contender=name,
                min_s=min(sample.wall_s for sample in own),
                median_s=median,
                cpu_s=statistics.median(sample.cpu_s for sample in own),
                memory_bytes=max(sample.memory_bytes for sample in own),
                rate=own[0].amount / median,
                unit=own[0].unit,
                times=median / medians[names[0]],
            )
        )
    return rows

"""Running the tests that should notice, and what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.anchors import node_id, node_ids
from mutants.mutant import Mutant
from mutants.tree import MUTANT, REPORT, ROOT, WrongCode, environment

SIMULATION = "test_everything_is_right_whatever_happens"
FAILED, PASSED = 1, 0  # pytest's exit codes
NO_PROGRAM = ("NameError", "ImportError", "ModuleNotFoundError", "UnboundLocalError")


class Unusable(Exception):
    """What ran proves nothing: no such test, code that cannot be run at all, or a broken function that nobody calls."""


@dataclass(frozen=True, slots=True)
class Catch:
    """What noticed. `seeds`: of a simulation, how many were tried, the failing one included; else 0."""

    test: str
    line: str
    error: str
    seeds: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one mutant; `catch` is None if nothing noticed. `calls`: of the broken function, by the last test command."""

    mutant: Mutant
    catch: Catch | None
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ran:
    """What one test command came to."""

    catch: Catch | None
    calls: int


def attack(mutant: Mutant, limit_s: float, seeds: int = 0) -> Outcome:
    """Run the mutant's tests, or so many seeds of the simulation, one after the other until one notices.

    Raises:
        StaleMutant, Unusable, WrongCode: nothing is proven.
    """
    began = time.monotonic()
    ran = Ran(None, 0)
    for test in [node_id(SIMULATION)] if seeds else node_ids(mutant):
        ran = run([test], limit_s * max(1, seeds), mutant, seeds)
        if ran.catch is not None:
            break
        if not ran.calls and not seeds:
            raise Unusable(f"{mutant.name}: {test} never calls {mutant.anchor}")
    return Outcome(mutant, ran.catch, ran.calls, round(time.monotonic() - began, 1))


def run(tests: Sequence[str], limit_s: float, mutant: Mutant | None = None, seeds: int = 1) -> Ran:
    """Run tests, given as node ids, until the first failure; a test that does not end within the limit has failed.

    Raises:
        Unusable: pytest had nothing to run, or could not; or the test failed without a call of what is broken.
        WrongCode: code from elsewhere than this repository was loaded.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "mutants.plugin", "-p", "no:cacheprovider", *tests]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **environment(ROOT),
                "TISTREAM_EFFORT": "full",  # every example and case
                REPORT: report.name,
                MUTANT: "" if mutant is None else mutant.where,
                "TISTREAM_SIM_SEEDS": str(seeds),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return Ran(Catch(tests[0], "", f"no end within {limit_s:.0f} s"), 0)
        except BaseException:  # Ctrl-C: it has a session of its own
            _end(process)
            raise
        text = Path(report.name).read_text()
    if process.returncode not in (PASSED, FAILED) or not text:
        raise Unusable(f"pytest {' '.join(tests)} answered {process.returncode}:\n{output[-3000:]}")
    return _judged(json.loads(text), tests, mutant, output)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill pytest and whatever it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _judged(report: dict[str, Any], tests: Sequence[str], mutant: Mutant | None, output: str) -> Ran:
    if report["foreign"]:
        raise WrongCode(f"{' '.join(tests)} loaded code from elsewhere: {report['foreign'][:3]}")
    failure, calls = report["failure"], report["calls"]
    if failure is None:
        if not report["passed"]:
            raise Unusable(f"{' '.join(tests)}: no test ran, or none could be loaded\n{output[-3000:]}")
        return Ran(None, calls)
    if mutant is not None and failure["error"].startswith(NO_PROGRAM):
        raise Unusable(f"{mutant.name} is no program: {failure['error']}")
    if mutant is not None and not calls:
        raise Unusable(f"{mutant.name}: {failure['test']} fails before anything broken is called: {failure['error']}")
    return Ran(Catch(failure["test"], failure["line"], failure["error"], report["seeds"]), calls)

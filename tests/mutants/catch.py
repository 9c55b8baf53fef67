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

from mutants.mutant import Mutant
from mutants.tree import Tree, WrongCode

SIMULATION = "tests/simulation/test_simulation.py::test_everything_is_right_whatever_happens"
FAILED, PASSED = 1, 0  # pytest's exit codes


class Unusable(Exception):
    """The tests could not be run at all: no such test, or code that cannot even be imported."""


@dataclass(frozen=True, slots=True)
class Catch:
    """What noticed. `examples`: of a property test or a simulation, how many were tried, the failing one included;
    else 0."""

    test: str
    line: str
    error: str
    examples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one mutant; `catch` is None if nothing noticed, and `seconds` is what all of its tests took."""

    mutant: Mutant
    catch: Catch | None
    seconds: float


def attack(tree: Tree, mutant: Mutant, limit_s: float, seeds: int = 0) -> Outcome:
    """Break the tree, and run the mutant's tests, or so many seeds of the simulation, until one notices.

    Raises StaleMutant, Unusable, WrongCode.
    """
    began = time.monotonic()
    catch = None
    with tree.broken(mutant):
        for catcher in [SIMULATION] if seeds else mutant.catchers:
            catch = run(tree, catcher.split(), limit_s, must_load=mutant.file, seeds=seeds)
            if catch is not None:
                break
    return Outcome(mutant, catch, round(time.monotonic() - began, 1))


def run(tree: Tree, tests: Sequence[str], limit_s: float, must_load: str | None = None, seeds: int = 1) -> Catch | None:
    """Run tests until the first failure; None if there was none.

    Raises:
        Unusable: pytest had nothing to run, or could not.
        WrongCode: code from elsewhere than the tree was loaded, or `must_load` was not.
    """
    began = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "mutants.watch", "-p", "no:cacheprovider", *tests]
        process = subprocess.Popen(
            command,
            cwd=tree.path,
            env={**tree.environment(), "MUTANTS_REPORT": report.name, "TISTREAM_SIM_SEEDS": str(seeds)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return Catch(tests[0], "", f"no end within {limit_s:.0f} s", 0, round(time.monotonic() - began, 1))
        except BaseException:  # Ctrl-C: it has a session of its own
            _end(process)
            raise
        text = Path(report.name).read_text()
    if process.returncode not in (PASSED, FAILED) or not text:
        raise Unusable(f"pytest {' '.join(tests)} answered {process.returncode}:\n{output[-3000:]}")
    return _judged(json.loads(text), tests, must_load)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill pytest and whatever it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _judged(report: dict[str, Any], tests: Sequence[str], must_load: str | None) -> Catch | None:
    if report["foreign"]:
        raise WrongCode(f"{' '.join(tests)} loaded code from elsewhere: {report['foreign'][:3]}")
    failure = report["failure"]
    if must_load is not None and must_load not in report["loaded"]:
        raise WrongCode(f"{' '.join(tests)} never loads {must_load}")
    if failure is None:
        return None
    if failure["error"].startswith(("NameError", "ImportError", "ModuleNotFoundError", "UnboundLocalError")):
        raise Unusable(f"the mutant is no program: {failure['error']}")
    return Catch(failure["test"], failure["line"], failure["error"], failure["examples"], failure["seconds"])

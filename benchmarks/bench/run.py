"""`make bench [CASE=name]`: run cases, save their raw results, and write the tables and plots anew."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from bench import cases, report
from bench.measure import Bench, Disagreement
from bench.results import result, save

SCALES = (1, 4, 16)
GROWTH = "-growth"  # what a result is called that was measured at all of them


def names() -> list[str]:
    """Every case, as it is called on the command line."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(cases.__path__))


def main(
    case: Annotated[list[str] | None, typer.Option(help="run only this one; may be repeated")] = None,
    growth: Annotated[bool, typer.Option(help="cases that can, at 1x, 4x and 16x the work")] = False,
    rounds: Annotated[int, typer.Option(help="rounds of each comparison")] = 5,
    keep: Annotated[bool, typer.Option(help="save the results")] = True,
    tmp: Annotated[Path | None, typer.Option(help="where inputs and outputs go")] = None,
) -> None:
    """Run benchmark cases."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a line is seen when it is printed, also in a log
    unknown = set(case or ()) - set(names())
    if unknown:
        raise typer.BadParameter(f"no case {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    modules = {name: importlib.import_module(f"bench.cases.{name.replace('-', '_')}") for name in names()}
    grow = {name: module.USUAL for name, module in modules.items() if hasattr(module, "USUAL")}
    if growth and set(case or ()) - set(grow):
        raise typer.BadParameter(f"measured at {SCALES} times the work are {', '.join(grow)}")
    failed = False
    for name in case or (grow if growth else modules):
        module = modules[name]
        print(f"\n== {name}: {module.WHAT}")
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=tmp) as folder:
            bench = Bench(Path(folder), SCALES, rounds, grow[name]) if growth else Bench(Path(folder), rounds=rounds)
            try:
                module.run(bench)
            except Exception as error:  # the other cases are measured all the same
                failed = True
                if not isinstance(error, Disagreement):
                    traceback.print_exc()
                print(f"{name}: not recorded: {error}")
                continue
        if keep:
            called = f"{name}{GROWTH}" if growth else name
            what = f"{module.WHAT}. Here {grow[name]}x is that much work" if growth else module.WHAT
            print(f"saved: {save(result(called, what, bench.samples, bench.figures))}")
    if keep:
        report.write()
    sys.exit(failed)


if __name__ == "__main__":
    typer.run(main)

"""A pytest plugin (-p mutants.watch): notes what failed first, after how many examples, and which code was loaded.

Hypothesis tries the same examples in every run and does not shrink: what is wanted is whether a test notices, and
how soon, not the smallest example.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from mutants.tree import PACKAGES

settings.register_profile(
    "mutants",
    database=None,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    print_blob=False,
    report_multiple_bugs=False,
)

_STATE: dict[str, Any] = {"began": 0.0, "examples": 0, "failure": None, "passed": 0}


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("mutants")
    _STATE["began"] = time.monotonic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    counted: set[int] = set()
    for item in items:
        handle = getattr(getattr(item, "obj", None), "hypothesis", None)
        if handle is not None and id(handle) not in counted:
            counted.add(id(handle))
            handle.inner_test = _counting(handle.inner_test)


def _counting(inner: Any) -> Any:
    @functools.wraps(inner)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if _STATE["failure"] is None and not _STATE.get("over"):
            _STATE["examples"] += 1
        try:
            return inner(*args, **kwargs)
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "hypothesis":
                _STATE["over"] = True
            raise

    return counted


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "seed" in getattr(getattr(item, "callspec", None), "params", {}):
        _STATE["examples"] += 1  # a simulation: each seed is a test of its own
    else:
        _STATE["examples"], _STATE["over"] = 0, False


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.passed and report.when == "call":
        _STATE["passed"] += 1
    if report.failed and call.excinfo is not None and _STATE["failure"] is None:
        _STATE["failure"] = {
            "test": item.nodeid,
            "examples": _STATE["examples"],
            "seconds": round(time.monotonic() - _STATE["began"], 2),
            **_place(call.excinfo),
        }


def _place(info: pytest.ExceptionInfo[BaseException]) -> dict[str, str]:
    """The error, and the line of a test (or its support) that it came to light in."""
    tests = Path(os.environ["MUTANTS_TREE"]) / "tests"
    message = str(info.value).strip().partition("\n")[0][:300]
    found = {"error": f"{info.type.__name__}: {message}".rstrip(": "), "line": "", "place": ""}
    for entry in reversed(info.traceback):
        path = Path(str(entry.path))
        if path.is_relative_to(tests) and not path.is_relative_to(tests / "mutants"):
            found["line"] = str(entry.statement).strip().partition("\n")[0]
            found["place"] = f"{path.relative_to(tests.parent)}:{entry.lineno + 1}"
            break
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    tree = Path(os.environ["MUTANTS_TREE"])
    files = {
        name: str(module.__file__)
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] in PACKAGES and getattr(module, "__file__", None)
    }
    report = {
        "failure": _STATE["failure"],
        "passed": _STATE["passed"],
        "loaded": sorted(str(Path(file).relative_to(tree)) for file in files.values() if file.startswith(str(tree))),
        "foreign": sorted(file for file in files.values() if not Path(file).is_relative_to(tree)),
    }
    Path(os.environ["MUTANTS_REPORT"]).write_text(json.dumps(report))

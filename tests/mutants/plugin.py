"""A pytest plugin (`-p mutants.plugin`): breaks one function while its module is imported, and notes what failed first.

The mutant is named in an environment variable. The module's code is not touched: after it has run, the function in it
is replaced, so that `from module import function` gets the broken one, too. Calls of it are counted: a mutant whose
function is never called proves nothing.

Hypothesis tries the same examples in every run and does not shrink: what is wanted is whether a test notices.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from mutants.anchors import Target, target_of
from mutants.mutant import Function, defined
from mutants.tree import MUTANT, PACKAGES, REPORT, ROOT

settings.register_profile(
    "mutants",
    database=None,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    print_blob=False,
    report_multiple_bugs=False,
)

_STATE: dict[str, Any] = {"began": 0.0, "failure": None, "passed": 0, "seeds": 0, "calls": 0}


# -- breaking ---------------------------------------------------------------------------------------------------------


class _Breaking(importlib.abc.MetaPathFinder):
    """Finds the target's module as it would be found anyway, and replaces the function once the module has run."""

    def __init__(self, target: Target, make: Callable[[Function], Function]) -> None:
        self._target, self._make = target, make

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._target.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _replace(module, self._target.qualname, self._make)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _replace(module: ModuleType, qualname: str, make: Callable[[Function], Function]) -> None:
    *outer, name = qualname.split(".")
    holder: Any = module
    for part in outer:
        holder = getattr(holder, part)
    setattr(holder, name, _broken(vars(holder)[name], make))
    if isinstance(vars(holder)[name], functools.cached_property):
        vars(holder)[name].__set_name__(holder, name)


def _broken(member: Any, make: Callable[[Function], Function]) -> Any:
    """The broken counterpart of a function, of whatever kind it is in its class."""
    if isinstance(member, staticmethod | classmethod):
        return type(member)(_counted(member.__func__, make))
    if isinstance(member, property):
        assert member.fget is not None
        return property(_counted(member.fget, make), member.fset, member.fdel, member.__doc__)
    if isinstance(member, functools.cached_property):
        return functools.cached_property(_counted(member.func, make))
    return _counted(member, make)


def _counted(original: Function, make: Callable[[Function], Function]) -> Function:
    broken = make(original)
    assert not inspect.iscoroutinefunction(original) or inspect.iscoroutinefunction(broken), "must stay a coroutine"

    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _STATE["calls"] += 1
        return broken(*args, **kwargs)

    return counted


# -- watching ---------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("mutants")
    _STATE["began"] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    _STATE["seeds"] += "seed" in getattr(getattr(item, "callspec", None), "params", {})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.passed and report.when == "call":
        _STATE["passed"] += 1
    if report.failed and call.excinfo is not None and _STATE["failure"] is None:
        _STATE["failure"] = {"test": item.nodeid, **_place(call.excinfo)}


def _place(info: pytest.ExceptionInfo[BaseException]) -> dict[str, str]:
    """The error, and the line of a test (or its support) that it came to light in."""
    tests = ROOT / "tests"
    message = str(info.value).strip().partition("\n")[0][:300]
    found = {"error": f"{info.type.__name__}: {message}".rstrip(": "), "line": "", "place": ""}
    for entry in reversed(info.traceback):
        path = Path(str(entry.path))
        if path.is_relative_to(tests) and not path.is_relative_to(tests / "mutants"):
            found["line"] = str(entry.statement).strip().partition("\n")[0]
            found["place"] = f"{path.relative_to(ROOT)}:{entry.lineno + 1}"
            break
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    files = [
        str(module.__file__)
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] in PACKAGES and getattr(module, "__file__", None)
    ]
    report = {
        "failure": _STATE["failure"],
        "passed": _STATE["passed"],
        "seeds": _STATE["seeds"],
        "calls": _STATE["calls"],
        "seconds": round(time.monotonic() - _STATE["began"], 2),
        "foreign": sorted(file for file in files if not Path(file).is_relative_to(ROOT)),
    }
    if path := os.environ.get(REPORT):
        Path(path).write_text(json.dumps(report))


if os.environ.get(MUTANT):
    _mutant = defined(os.environ[MUTANT])
    _target = target_of(_mutant)
    assert _target.module not in sys.modules, f"{_target.module} was imported before it could be broken"
    sys.meta_path.insert(0, _Breaking(_target, _mutant.make))

"""Mutants that no test can catch, for the tests of the runner."""

from __future__ import annotations

from mutants.mutant import Function, mutant

CURSOR = "test_a_changed_letter_is_seen"


@mutant("tistream:cursor._check", invariants=(18,), catchers=(CURSOR,))
def harmless(original: Function) -> Function:
    """Nothing."""
    return original


@mutant("tistream:cursor.decode", invariants=(18,), catchers=("test_an_exact_cut_keeps_commit_ts_whole",))
def never_called(original: Function) -> Function:
    """Nothing that the test looks at."""
    return lambda scope, text: None


@mutant("tistream:cursor._check", invariants=(18,), catchers=(CURSOR,))
def no_program(original: Function) -> Function:
    """The broken function itself cannot be run."""
    return lambda body: undefined  # type: ignore[name-defined] # noqa: F821


@mutant("tistream:cursor.no_such_function", invariants=(18,), catchers=(CURSOR,))
def nowhere(original: Function) -> Function:
    """The function that is broken is not there."""
    return original


@mutant("tistream:Window", invariants=(18,), catchers=("test_that_does_not_exist",))
def noticed_by_nobody(original: Function) -> Function:
    """The test that must notice is not there."""
    return original

"""References and indexes of runs: what a manifest states, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tistream.errors import InvariantBroken
from tistream.format import manifest as manifests
from tistream.format.manifest import KIND_CHECKPOINT, KIND_TICK, Manifest
from tistream.format.run import IndexPart, RunRef, check_index, runs_of
from tistream.format.task_view import NOTHING, extend
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan

SPAN = KeySpan(b"a", b"z")


def ref(name: str, low: int | None, high: int, first: bytes = b"b", last: bytes = b"y") -> RunRef:
    return RunRef(name, 9, "00000000", 3, low, high, (1, first), (1, last))


PART = IndexPart(SPAN, 5, 10, 40, (ref("base", None, 10), ref("r1", 10, 20), ref("r2", 20, 40)))


def manifest(number: int, index: tuple[IndexPart, ...] | None, flushed: int = 100) -> Manifest:
    kind = KIND_CHECKPOINT if number == 1 else KIND_TICK
    live = () if number == 1 else None
    return Manifest(
        TenantKey("7", "acme"), 3, number, 1, "n", kind, SPAN, flushed, flushed, live_segments=live, index=index
    )


def test_an_index_survives_its_manifest() -> None:
    written = manifest(1, (PART,))
    assert manifests.decode("m", manifests.encode(written)) == written
    binary = replace(PART.runs[0], first=(0, b"\x00\xff"), last=(2**62, b"\xff" * 9))
    assert RunRef.from_json(binary.to_json()) == binary


def test_a_manifest_without_an_index_does_not_name_it() -> None:
    plain, with_one = (manifests.encode(manifest(1, index)) for index in (None, (PART,)))
    assert len(plain) < len(with_one)
    assert manifests.decode("m", plain).index is None
    assert manifests.decode("m", manifests.encode(manifest(1, ()))).index == ()


def test_a_view_keeps_the_index_until_a_manifest_restates_it() -> None:
    view = extend(NOTHING, [manifest(1, (PART,)), manifest(2, None)])
    assert (view.index, view.indexed_ts, view.base_ts) == ((PART,), 40, 10)
    assert [run.key for run in view.runs] == ["base", "r1", "r2"]
    assert extend(view, [manifest(3, ())]).indexed_ts == 0
    assert (NOTHING.runs, NOTHING.indexed_ts, NOTHING.base_ts) == ((), 0, 0)


def test_parts_are_clipped_to_a_child() -> None:
    pieces = replace(PART, runs=(ref("low", 10, 20, b"b", b"f"), ref("high", 10, 20, b"g", b"y")))
    child = pieces.clipped(KeySpan(b"a", b"g"))
    assert child is not None
    assert (child.span, [run.key for run in child.runs]) == (KeySpan(b"a", b"g"), ["low"])
    assert pieces.clipped(KeySpan(b"z", b"")) is None
    other = pieces.clipped(KeySpan(b"c", b"h"))
    assert other is not None
    assert [run.key for run in runs_of((child, other))] == ["low", "high"]


def test_runs_are_grouped_by_window() -> None:
    part = replace(
        PART,
        runs=(ref("base", None, 10), ref("r2", 20, 40), ref("r1a", 10, 20, b"b", b"c"), ref("r1b", 10, 20, b"d", b"e")),
    )
    assert [[run.key for run in runs] for runs in part.by_window()] == [["r1a", "r1b"], ["r2"]]
    assert [run.key for run in part.base] == ["base"]


@pytest.mark.parametrize(
    ("index", "invariant"),
    [
        ((replace(PART, span=KeySpan(b"a", b"y")),), 25),
        ((replace(PART, span=KeySpan(b"a", b"m")), replace(PART, span=KeySpan(b"n", b"z"))), 25),
        ((replace(PART, runs=(ref("r1", 10, 21), ref("r2", 20, 40))),), 25),
        ((replace(PART, runs=(ref("r1", 9, 20),)),), 25),
        ((replace(PART, runs=(ref("r1", 20, 41),)),), 25),
        ((replace(PART, runs=(ref("base", None, 9),)),), 25),
        ((replace(PART, runs=(ref("a", 10, 20, b"b", b"d"), ref("b", 10, 20, b"d", b"e"))),), 25),
        ((replace(PART, base_ts=4, runs=()),), 25),
        ((replace(PART, basis=(ref("chunk", None, 4),)),), 25),
        ((replace(PART, basis=(ref("chunk", 10, 20),)),), 25),
        ((replace(PART, basis=(ref("chunk", None, 101),)),), 27),
        ((replace(PART, indexed_ts=101),), 27),
        ((replace(PART, base_ts=9, runs=()),), 28),
        ((replace(PART, indexed_ts=39, runs=()),), 28),
    ],
)
def test_an_index_that_breaks_a_rule_is_refused(index: tuple[IndexPart, ...], invariant: int) -> None:
    view = extend(NOTHING, [manifest(1, (PART,))])
    with pytest.raises(InvariantBroken) as refused:
        extend(view, [manifest(2, index)])
    assert refused.value.number == invariant


def test_parts_of_different_windows_side_by_side() -> None:
    left = IndexPart(KeySpan(b"a", b"m"), 5, 30, 40, (ref("one", None, 30, b"b", b"c"),))
    right = IndexPart(KeySpan(b"m", b"z"), 5, 10, 20, (ref("two", 10, 20, b"n", b"o"),))
    check_index((left, right), SPAN, 40, ())
    view = extend(NOTHING, [manifest(1, (left, right))])
    assert (view.indexed_ts, view.base_ts) == (20, 30)

"""Matches the changes that have exactly one prewrite and one commit, or one COMMITTED entry: the fast path. Pure.

Entries are grouped by start_ts with one sort of packed words. Entries of a transaction with several rows are grouped
again by a hash of (start_ts, key). Entries of one (key, start_ts) always fall into one group. So a group that consists
of a prewrite and its commit (start_ts and key compared in full) is matched without any other entry. All other groups,
and those with a hash collision, are left to match/exact_match.py, which uses joins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tistream.arrays import Int64s, UInt64s
from tistream.model.packed_sort import WORD, sort_words, stable_order
from tistream.model.tidb_key import KeyParts

PLAIN_PREWRITE, PLAIN_COMMIT, WHOLE, UNUSUAL = 0, 1, 2, 3
CLASS_BITS = 2

_MIX = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63)))


@dataclass(frozen=True, slots=True)
class Entries:
    """The input of the fast path, as parallel columns. kind: PLAIN_PREWRITE (without a generation), PLAIN_COMMIT, WHOLE
    (a COMMITTED entry, or a row that an earlier tick matched) or UNUSUAL. keys: raw keys. parts: the decoded keys."""

    start_ts: Int64s
    kind: npt.NDArray[np.int8]
    keys: pl.Series
    parts: KeyParts


@dataclass(frozen=True, slots=True)
class FastMatch:
    """The result of the fast path, as row numbers. For each matched change: the row that has its values, and the row
    that has its commit_ts. `rest`: the entries that are not matched."""

    values_at: Int64s
    commit_at: Int64s
    rest: Int64s


def settle(entries: Entries) -> FastMatch:
    """Match the changes that have exactly one prewrite and one commit, and those that are one WHOLE entry. The
    attribute `rest` of the result has the entries that the exact path must match."""
    count = len(entries.kind)
    everything = np.arange(count)
    if not count:
        return FastMatch(everything, everything, everything)
    by_start = stable_order(entries.start_ts, entries.kind, CLASS_BITS)
    first = _settle(entries, by_start, entries.start_ts[by_start])
    if not len(first.rest):
        return first
    hashed = _hashes(entries, first.rest) >> np.uint64(CLASS_BITS + (count - 1).bit_length())
    second = _settle(entries, *_by_hash(entries, first.rest, hashed))
    return FastMatch(
        np.concatenate([first.values_at, second.values_at]),
        np.concatenate([first.commit_at, second.commit_at]),
        second.rest,
    )


def _settle(entries: Entries, order: Int64s, group: npt.NDArray[np.int64] | UInt64s) -> FastMatch:
    """Match the groups that consist of a prewrite and its commit. `order`: row numbers sorted by group, then kind.
    `group`: the group of each item of `order`."""
    begins = np.ones(len(order) + 1, bool)
    np.not_equal(group[1:], group[:-1], out=begins[1:-1])
    kind = entries.kind[order]
    whole = begins[:-1] & begins[1:] & (kind == WHOLE)
    pair = np.zeros(len(order), bool)
    pair[:-1] = begins[:-2] & ~begins[1:-1] & begins[2:]
    pair[:-1] &= (kind[:-1] == PLAIN_PREWRITE) & (kind[1:] == PLAIN_COMMIT)
    at = np.flatnonzero(pair)
    prewrite, commit = order[at], order[at + 1]
    same = _same_changes(entries, prewrite, commit)
    if not same.all():
        at, prewrite, commit = at[same], prewrite[same], commit[same]
    alone = order[whole]
    left = ~whole
    left[at] = left[at + 1] = False
    if not len(alone):
        return FastMatch(prewrite, commit, order[left])
    return FastMatch(np.concatenate([prewrite, alone]), np.concatenate([commit, alone]), order[left])


def _same_changes(entries: Entries, left: Int64s, right: Int64s) -> npt.NDArray[np.bool_]:
    parts = entries.parts
    same: npt.NDArray[np.bool_] = parts.tail[left] == parts.tail[right]
    same &= entries.start_ts[left] == entries.start_ts[right]  # two different start_ts may have equal hashes
    same &= parts.table_id[left] == parts.table_id[right]
    exact = parts.exact[left] & parts.exact[right]
    if exact.all():
        return same
    unsure = np.flatnonzero(same & ~exact)
    same[unsure] = (entries.keys.gather(left[unsure]) == entries.keys.gather(right[unsure])).to_numpy()
    return same


def _hashes(entries: Entries, rows: Int64s) -> UInt64s:
    """A hash of (start_ts, table_id, tail of the key) for each row: equal for entries of one change."""
    parts = entries.parts
    mixed = entries.start_ts[rows].astype(np.uint64) * _MIX[0]
    for more, factor in ((parts.tail[rows], _MIX[1]), (parts.table_id[rows].astype(np.uint64), _MIX[2])):
        mixed ^= mixed >> np.uint64(31)
        mixed += more
        mixed *= factor
    mixed ^= mixed >> np.uint64(29)
    return mixed * _MIX[3]


def _by_hash(entries: Entries, rows: Int64s, hashed: UInt64s) -> tuple[Int64s, UInt64s]:
    """Sort `rows` by hash, then kind. Returns the sorted rows and their hashes. Hash, kind and row number are packed
    into one 64-bit word, so the hashes must be small enough to fit."""
    row_bits = (len(entries.kind) - 1).bit_length()
    assert int(hashed.max()).bit_length() + CLASS_BITS + row_bits <= WORD
    packed = (hashed << np.uint64(CLASS_BITS)) | entries.kind[rows].astype(np.uint64)
    packed = sort_words((packed << np.uint64(row_bits)) | rows.astype(np.uint64))
    order = (packed & np.uint64((1 << row_bits) - 1)).view(np.int64)
    return order, packed >> np.uint64(row_bits + CLASS_BITS)

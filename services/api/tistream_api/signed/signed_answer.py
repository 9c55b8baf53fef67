"""Makes answers of SignedChanges: which row groups a reader may have whole, how they are decoded, and a signed URL for
each.

A row group is given only if all its rows are of one physical table, were committed while that table had the requested
name, and are not above the resolved ts, because later names are not known. Its footer is trimmed to the given row
groups, without statistics, so that it has nothing of the others. The bytes count as served, and against the tenant's
rate, when they are signed. An object that is encrypted with a tenant's key is decrypted by the store at each GET, so a
revoked key stops readers at once; a revoked token does so when its URLs expire.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from tistream.errors import Gone, InvalidRequest
from tistream.filters.event_choice import EventChoice
from tistream.format.parquet_footer import footer_of_groups
from tistream.format.segment import SegmentRef
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.rows import open_segment
from tistream.read.cursor import Scope
from tistream.read.plan import GroupRef, groups_in
from tistream.read.signed.shown_shapes import shown
from tistream.read.source import TenantSource
from tistream.storage.object_store import ObjectStore, RangeSigner
from tistream.wire.signed import SignedChanges, SignedGroup, SignedObject
from tistream_api.pull.filtered import Outside
from tistream_api.signed.stretch import SPAN_ROWS, Stretch, StretchLimits, not_excluded, stretch


class NothingSigned(InvalidRequest):
    """Raised if this server signs no URLs, because its object store or its settings do not allow it."""

    code = "nothing-signed"


@dataclass(frozen=True, slots=True)
class Signing:
    """How URLs are signed. `sign`: signs the URL of a byte range; None if the object store cannot sign. `seconds`: how
    long a URL is valid; 0: this server signs no URLs."""

    sign: RangeSigner | None
    seconds: int

    def signer(self) -> RangeSigner:
        """The function that signs. Raises NothingSigned."""
        if not self.seconds:
            raise NothingSigned(
                "this server signs no URLs of the object store, because TISTREAM_API__SIGNED__SECONDS is 0: read "
                "without direct"
            )
        if self.sign is None:
            raise NothingSigned(
                "the objects of this server are in a directory or in memory, and only a bucket's URLs can be signed: "
                "read without direct"
            )
        return self.sign


@dataclass(slots=True)
class SignedAnswers:
    """Makes answers from the segments in `objects`. Thread-safe."""

    objects: ObjectStore
    signing: Signing
    _footers: FooterCache = field(default_factory=FooterCache)

    def answer(
        self,
        source: TenantSource,
        scope: Scope,
        window: Window,
        resolved_ts: int,
        limits: StretchLimits,
        choice: EventChoice | None = None,
    ) -> SignedChanges:
        """The answer for a range of commit_ts at the beginning of the window. `scope` names a table; `resolved_ts` is
        the tenant's. `choice`: the events that the reader wants, which filters them itself; None: all.

        Raises:
            NothingSigned: this server signs no URLs.
            NotFoundYet: a segment was deleted after a compaction; read the manifests again, and make the answer anew.
            Gone, CorruptObject, Unavailable.
        """
        sign = self.signing.signer()
        chosen = next_stretch(source, scope, window, resolved_ts, limits, choice)
        ids = sorted({group.info.table_id_min for group in chosen.groups})
        tables, intervals, versions = shown(source.shapes(scope, ids, Window(window.low, chosen.high)))
        return SignedChanges(
            start_ts=str(window.low),
            end_ts=str(chosen.high),
            direct=chosen.direct,
            seconds=self.signing.seconds,
            objects=[self._object(segment, groups, sign) for segment, groups in by_segment(chosen.groups)],
            tables=tables,
            intervals=intervals,
            schema_versions=versions,
        )

    def _object(self, segment: SegmentRef, indexes: Sequence[int], sign: RangeSigner) -> SignedObject:
        footer = open_segment(self.objects, segment, self._footers).footer
        groups = []
        for index in indexes:
            info, (start, length) = segment.row_groups[index], footer.groups[index].range
            groups.append(
                SignedGroup(
                    rows=info.rows,
                    table_id=str(info.table_id_min),
                    commit_ts_min=str(info.commit_ts_min),
                    commit_ts_max=str(info.commit_ts_max),
                    start=start,
                    length=length,
                    url=sign(segment.key, start, length, self.signing.seconds),
                )
            )
        described = base64.b64encode(footer_of_groups(footer, indexes)).decode()
        return SignedObject(key=segment.key, size=segment.size, footer=described, groups=groups)


def next_stretch(
    source: TenantSource,
    scope: Scope,
    window: Window,
    resolved_ts: int,
    limits: StretchLimits,
    choice: EventChoice | None = None,
) -> Stretch:
    """Choose the stretch at the beginning of the window: a range of commit_ts whose changes of a table a reader takes
    in one way, from the object store or by a pull. `scope` names the table. `resolved_ts` is the tenant's. With
    `choice`, row groups are left out whose statistics exclude its events, as in a pull. Raises Gone; with `choice` also
    the errors of reads of footers."""
    if window.low == window.high:
        return Stretch(window.high, direct=True, groups=())
    window = Window(window.low, source.horizon(window, SPAN_ROWS))
    ids = source.physical_ids(scope, window)
    groups = groups_in(source.segments(window), window, ids)
    if choice is not None:
        groups, window = not_excluded(groups, window, Outside(choice, scope, source), limits)
    known: dict[GroupRef, bool] = {}

    def may_give(group: GroupRef) -> bool:
        if group not in known:
            known[group] = only_of(source, scope, group, resolved_ts)
        return known[group]

    return stretch(groups, window, may_give, limits)


def only_of(source: TenantSource, scope: Scope, group: GroupRef, resolved_ts: int) -> bool:
    """Whether every row of the row group is of a table that had the scope's name when the row was committed. Only then
    a caller who may read the scope may have the row group's bytes. Above `resolved_ts` names are not known yet."""
    info = group.info
    one = info.table_id_min
    if one != info.table_id_max or one <= 0 or info.commit_ts_max > resolved_ts:
        return False
    try:
        shapes = source.shapes(scope, [one], Window(info.commit_ts_min - 1, info.commit_ts_max))
    except Gone:  # the names that the table had then are no longer known
        return False
    found = shapes.intervals.get(one, ())
    return bool(found) and all(each.version is not None for each in found)


def by_segment(groups: Sequence[GroupRef]) -> list[tuple[SegmentRef, list[int]]]:
    """The row groups by segment: (segment, indexes in ascending order)."""
    found: dict[str, tuple[SegmentRef, list[int]]] = {}
    for one in groups:
        found.setdefault(one.segment.key, (one.segment, []))[1].append(one.index)
    return [(segment, sorted(indexes)) for segment, indexes in found.values()]

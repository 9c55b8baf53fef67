"""The failure matrix of a log backup, and the rules that look right and are not (docs/log-backup.md)."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from support.faulty_store import Fault, FaultyObjectStore
from support.log_bytes import DELETE, LOCK, PUT, ROLLBACK, Part, index_key, record, row_key
from support.source_world import LONG, TENANT, FilesAsPool, S, World, put
from tistream.clock import ManualClock
from tistream.errors import CommitStateUnknown, CorruptObject, Unavailable
from tistream.logbackup import prefix
from tistream.schema.records import RestoredTables
from tistream.schema.tidb.meta_change import META_TABLE_ID, MetaDecoder, MetaRow
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file
from tistream.storage.release_log import ReleaseLog
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.plan.cuts import FileLimits
from tistream_ingest.plan.rules import SourceRules
from tistream_ingest.source.bucket import Bucket
from tistream_ingest.source.source import SourceIdentity, SourceRunner
from tistream_ingest.source.stopped import SourceHeld, SourceStopped


def test_releases_follow_the_checkpoint_and_nothing_else() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5), put(2, S + 50)]), resolved_ts=S + 90, max_ts=S + 50)
    assert not world.source.step()
    world.log.checkpoint(S)
    assert not world.source.step(), "the checkpoint has not passed the snapshot"
    world.log.checkpoint(S + 10)
    assert world.source.step()
    assert world.found() == [(row_key(5, 1), S + 5, 1, b"v", None)]
    assert world.watermarks() == [S + 10]
    world.log.flush(Part([put(1, S + 30, b"w"), (row_key(5, 2), S + 60, record(DELETE, S + 55))]))
    world.log.checkpoint(S + 60, store_id=2)
    world.log.checkpoint(S + 20, store_id=3)
    assert world.source.step()
    assert not world.source.step()
    assert world.found()[1:] == [
        (row_key(5, 1), S + 30, 1, b"w", b"v"),
        (row_key(5, 2), S + 50, 1, b"v", None),
        (row_key(5, 2), S + 60, 2, None, b"v"),
    ]
    assert world.watermarks() == [S + 10, S + 60]


def test_an_idle_log_still_advances_the_tenant() -> None:
    world = World()
    for ts in (S + 10, S + 20):
        world.log.checkpoint(ts)
        assert world.source.step()
    assert world.watermarks() == [S + 10, S + 20]
    assert world.found() == []


def test_commits_at_or_below_the_snapshot_are_in_it() -> None:
    world = World()
    world.log.flush(Part([put(1, S), put(2, S + 1)]))
    world.log.checkpoint(S + 10)
    world.source.step()
    assert [row[1] for row in world.found()] == [S + 1]


def test_a_physical_delete_is_no_change() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]), Part([(row_key(5, 1), S + 5, b""), (row_key(5, 2), S + 6, b"")], type=0))
    world.log.checkpoint(S + 10)
    world.source.step()
    assert world.found() == [(row_key(5, 1), S + 5, 1, b"v", None)]


def test_locks_and_rollbacks_are_no_changes() -> None:
    world = World()
    others = [(row_key(5, 1), S + 6, record(LOCK, S + 5)), (row_key(5, 1), S + 7, record(ROLLBACK, S + 7, b"p"))]
    world.log.flush(Part([put(1, S + 5), *others]))
    world.log.checkpoint(S + 10)
    world.source.step()
    assert len(world.found()) == 1


def test_a_rewritten_record_and_a_repeat_are_the_same_change() -> None:
    world = World()
    again = put(1, S + 5, more=b"RF" + bytes(8))
    world.log.flush(Part([put(1, S + 5)]))
    world.log.flush(Part([again, put(1, S + 5)]), store_id=2)
    world.log.checkpoint(S + 10)
    world.source.step()
    assert world.found() == [(row_key(5, 1), S + 5, 1, b"v", None)]
    world.log.flush(Part([again, put(2, S + 15)]))  # a scan repeats what was released
    world.log.checkpoint(S + 20)
    world.source.step()
    assert [row[1] for row in world.found()] == [S + 5, S + 15]


def test_two_different_changes_under_one_identity_stop_the_source() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.flush(Part([put(1, S + 5, start_ts=S + 1)]))
    world.log.checkpoint(S + 10)
    with pytest.raises(SourceStopped, match="two different changes"):
        world.source.step()


def test_a_value_may_come_with_an_earlier_flush_of_any_store_or_a_later_one() -> None:
    world = World()
    value = (row_key(5, 1), S + 2, LONG)
    world.log.flush(Part([value, (row_key(5, 9), S + 2, b"x" * 400)], cf="default"), store_id=1)
    world.log.checkpoint(S + 3)
    world.source.step()
    world.log.flush(Part([put(1, S + 9, None, start_ts=S + 2)], min_begin_ts=S + 2), store_id=2)
    world.log.flush(Part([value], cf="default"), store_id=3)
    world.log.checkpoint(S + 10)
    world.source.step()
    assert world.found() == [(row_key(5, 1), S + 9, 1, LONG, None)]


def test_values_of_transactions_longer_than_the_horizon_are_found() -> None:
    hour = 3_600_000 << 18
    world = World()
    world.log.flush(Part([(row_key(5, 1), S + 2, LONG)], cf="default"))
    for number in range(1, 7):
        world.log.flush(Part([put(2, S + number * hour)], min_begin_ts=S + number * hour - 1))
        world.log.checkpoint(S + number * hour + 1)
        world.source.step()
    world.log.flush(Part([put(1, S + 7 * hour, None, start_ts=S + 2)], min_begin_ts=S + 2))
    world.log.checkpoint(S + 8 * hour)
    world.source.step()
    assert world.found()[-1] == (row_key(5, 1), S + 7 * hour, 1, LONG, None)


def test_a_value_that_is_missing_at_its_checkpoint_stops_the_source() -> None:
    world = World()
    world.log.flush(
        Part([put(1, S + 9, None, start_ts=S + 2)], min_begin_ts=S + 2),
        Part([(row_key(5, 1), S + 3, LONG)], cf="default"),
    )
    world.log.checkpoint(S + 10)
    with pytest.raises(SourceStopped) as stopped:
        world.source.step()
    for part in (row_key(5, 1).hex(), f"start_ts {S + 2}", f"commit_ts {S + 9}", "invariant 31"):
        assert part in str(stopped.value)
    assert world.watermarks() == []


@pytest.mark.parametrize(("keep", "rows"), [(False, 1), (True, 2)])
def test_index_entries_come_only_if_the_tenant_keeps_them(keep: bool, rows: int) -> None:
    world = World(keep_index=keep)
    world.log.flush(Part([put(1, S + 5), (index_key(5, b"abc"), S + 5, record(PUT, S + 4, b""))]))
    world.log.checkpoint(S + 10)
    world.source.step()
    assert len(world.found()) == rows


def test_a_release_waits_until_the_pool_has_the_one_before() -> None:
    world = World(reached=S)
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    assert world.source.step()
    world.log.flush(Part([put(1, S + 15)]))
    world.log.checkpoint(S + 20)
    with pytest.raises(SourceHeld, match="not in the pool yet") as held:
        world.source.step()
    assert held.value.stage == "sort"
    world.reached = S + 10
    assert world.source.step()
    assert world.found()[-1] == (row_key(5, 1), S + 15, 1, b"v", b"v")


def test_the_first_release_waits_for_the_rows_from_before_the_log() -> None:
    """Its old values come from them, also in the first release."""
    world = World()
    world.log.flush(Part([put(1, S + 5, b"new"), (row_key(5, 2), S + 6, record(DELETE, S + 4))]))
    world.log.checkpoint(S + 10)
    world.source.rows_wait = "backfill b1 is not finished"
    with pytest.raises(SourceHeld, match="b1"):
        world.source.step()
    assert world.source.seen.waits_for == "backfill b1 is not finished"
    assert world.watermarks() == []
    world.pool.base = {row_key(5, 1): b"old", row_key(5, 2): b"gone"}
    world.source.rows_wait = None
    assert world.source.step()
    assert world.found() == [
        (row_key(5, 1), S + 5, 1, b"new", b"old"),
        (row_key(5, 2), S + 6, 2, None, b"gone"),
    ]
    world.log.flush(Part([put(1, S + 15, b"newer")]))
    world.log.checkpoint(S + 20)
    world.source.rows_wait = "another backfill runs"
    assert world.source.step(), "after the first release it no longer matters"


def test_an_object_that_is_gone_stops_the_source_and_says_why() -> None:
    for safe_point, migrations, reason in (
        (S + 30, False, "truncated to 1030"),
        (0, True, "compacted"),
        (0, False, "deleted"),
    ):
        world = World()
        world.log.flush(Part([put(1, S + 5)]))
        world.log.checkpoint(S + 10)
        [data] = [info.key for info in world.log.objects.list_after("v1/2")]
        world.log.objects.delete(data)
        if safe_point:
            world.log.objects.put(prefix.SAFE_POINT, b"%d" % safe_point)
        if migrations:
            world.log.objects.put("v1/migrations/1.mgrt", b"")
        with pytest.raises(SourceStopped, match=reason):
            world.source.step()
        assert world.watermarks() == []


def test_a_log_that_was_truncated_while_the_source_was_away_is_no_empty_log() -> None:
    """Metadata and data below the safe point are gone without a trace: only the safe point tells."""
    world = World()
    world.log.checkpoint(S + 10)
    world.source.step()
    world.log.flush(Part([put(1, S + 15)]))
    for info in [*world.log.objects.list_after("v1/2"), *world.log.objects.list_after(prefix.METAS)]:
        world.log.objects.delete(info.key)
    world.log.objects.put(prefix.SAFE_POINT, b"%d" % (S + 30))
    world.log.checkpoint(S + 40)
    with pytest.raises(SourceStopped, match="truncated"):
        world.adapter().step()


@pytest.mark.parametrize("name", ["1.json", f"R{S:016X}.meta"])
def test_a_restore_whose_end_is_not_known_stops_the_source(name: str) -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    world.log.objects.put(f"v1/log_restore_tables_blocklists/R{S - 5:016X}_S{S - 9:016X}.meta", b"")
    world.log.objects.put(f"v1/log_restore_tables_blocklists/{name}", b"")
    with pytest.raises(SourceStopped, match=rf"blocklists/{re.escape(name)}.*full backup"):
        world.source.step()
    assert world.watermarks() == []


def marks(world: World) -> list[tuple[int, RestoredTables]]:
    """The marks of restores that were released, with their commit_ts."""
    found = []
    for row in world.pool.rows():
        if row["key"][:1] == b"m":
            meta = MetaRow(META_TABLE_ID, row["commit_ts"], row["start_ts"], row["key"], row["value"], None)
            record = MetaDecoder().decode(meta)
            assert record is not None
            assert isinstance(record.change, RestoredTables)
            found.append((record.commit_ts, record.change))
    return found


def test_a_restore_beside_the_log_is_marked_once_in_the_release_that_passes_its_end() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5), put(2, S + 15)]))
    name = world.log.restored(S + 12, S + 3, [8, 5, 8])
    for ts in (S + 10, S + 20, S + 30):
        world.log.checkpoint(ts)
        assert world.adapter().step()
    assert world.watermarks() == [S + 10, S + 20, S + 30]
    assert marks(world) == [(S + 12, RestoredTables(name, S + 3, S + 12, (5, 8)))]
    assert len([key for key, *_ in world.found() if key[:1] == b"t"]) == 2, "the changes beside it are released"


def test_a_restore_that_is_listed_after_the_checkpoint_has_passed_it_is_marked_by_the_next_release() -> None:
    world = World()
    world.log.checkpoint(S + 20)
    world.source.step()
    name = world.log.restored(S + 12, S + 3, [5])
    world.log.checkpoint(S + 30)
    dying = world.adapter()
    dying.runner = Dead()
    with suppress(ConnectionError):
        dying.step()
    world.log.objects.delete(f"v1/log_restore_tables_blocklists/{name}")
    world.adapter().execute(ReleaseLog(world.objects, TENANT).read(2))
    assert marks(world) == [(S + 21, RestoredTables(name, S + 3, S + 12, (5,)))], "the record has all it needs"


def test_a_damaged_list_of_a_restore_holds_the_source() -> None:
    world = World()
    name = world.log.restored(S + 2, S + 1, [5], checksum=b"no")
    world.log.checkpoint(S + 10)
    with pytest.raises(CorruptObject, match=rf"{name}.*SHA-256"):
        world.source.step()
    world.log.restored(S + 2, S + 1, [5])
    assert world.source.step()


@pytest.mark.parametrize(
    "changed",
    [{"restore_start_ts": 0}, {"restore_start_ts": S + 3}, {"restore_commit_ts": S + 4}, {"table_ids": [1 << 63]}],
)
def test_a_hostile_list_of_a_restore_holds_the_source(changed: dict[str, Any]) -> None:
    world = World()
    world.log.restored(S + 2, S + 1, [5], **changed)
    world.log.checkpoint(S + 10)
    with pytest.raises(CorruptObject, match=r"restore from|63 bits"):
        world.source.step()


def test_a_restore_that_ended_before_the_snapshot_is_in_it() -> None:
    """The object stays in the prefix until `br log truncate`, and the way out of such a stop is a newer snapshot."""
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    world.log.objects.put(f"v1/log_restore_tables_blocklists/R{S:016X}_S{S - 9:016X}.meta", b"")
    assert world.source.step()
    assert world.watermarks() == [S + 10]


def test_a_release_that_an_earlier_source_decided_is_read_from_its_own_log() -> None:
    """The first source is removed and its process dies between the record and the files; the second has another log."""
    first, second = World(), World()
    first.log.flush(Part([put(1, S + 5)]))
    first.log.checkpoint(S + 10)
    with suppress(ConnectionError):
        dying = first.adapter()
        dying.runner = Dead()
        dying.step()
    second.objects, second.pool = first.objects, FilesAsPool(first.objects)
    second.log.flush(Part([put(1, S + 5), put(2, S + 15)]))
    second.log.checkpoint(S + 20)
    logs = {"memory:": first.log.objects, "memory:2": second.log.objects}
    runner = LocalRunner(lambda url: logs[url], first.objects, lambda *_: second.pool)
    identity = SourceIdentity("log-2", TENANT, "memory:2", S, False)
    bucket = Bucket(second.log.objects)
    source = SourceRunner(
        identity, bucket, first.objects, second, runner, ManualClock(), lambda *_: None, open_log=lambda url: logs[url]
    )
    second.reached = S
    assert source.step()
    second.reached = S + 10
    assert source.step()
    assert second.watermarks() == [S + 10, S + 20]
    assert [row[1] for row in second.found()] == [S + 5, S + 15]


class Dead(LocalRunner):
    """A runner in a process that dies."""

    def __init__(self) -> None:
        super().__init__(lambda url: MemoryObjectStore(), MemoryObjectStore())

    def run(self, log_url: str, job: Any) -> Any:
        raise ConnectionError


def test_a_safe_point_behind_the_source_is_harmless() -> None:
    world = World()
    world.log.objects.put(prefix.SAFE_POINT, b"%d" % S)
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    assert world.source.step()
    assert world.source.seen.safe_point_ts == S


def test_a_damaged_slice_holds_the_source_until_it_is_repaired() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    [data] = [info.key for info in world.log.objects.list_after("v1/2")]
    whole = world.log.objects.get(data)
    for broken in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        world.log.objects.put(data, broken)
        with pytest.raises(SourceHeld) as held:
            world.source.step()
        assert held.value.stage == "damaged"
        assert data in str(held.value.object)
        assert world.watermarks() == []
    world.log.objects.put(data, whole)
    assert world.source.step()
    assert len(world.found()) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cf": "lock"}, "column family"),
        ({"compression_type": 2}, "compression 2"),
        ({"file_encryption_info": {"encryption_method": 2}}, "encrypted"),
    ],
)
def test_a_slice_of_an_unknown_form_stops_the_source_with_its_name(changed: dict[str, Any], reason: str) -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)], changed=changed))
    world.log.checkpoint(S + 10)
    with pytest.raises(SourceStopped, match=reason):
        world.source.step()


def test_a_damaged_checkpoint_or_metadata_is_named_and_heals() -> None:
    world = World()
    name = world.log.flush(Part([put(1, S + 5)]))
    world.log.objects.put("v1/global_checkpoint/1.ts", b"123")
    with pytest.raises(CorruptObject, match=r"global_checkpoint/1\.ts"):
        world.source.step()
    world.log.checkpoint(S + 10)
    whole = world.log.objects.get(f"v1/backupmeta/{name}")
    world.log.objects.put(f"v1/backupmeta/{name}", b"\xff")
    with pytest.raises(CorruptObject, match=name):
        world.source.step()
    world.log.objects.put(f"v1/backupmeta/{name}", whole)
    assert world.source.step()
    assert len(world.found()) == 1


def test_a_late_commit_stops_the_source_and_a_late_repeat_does_not() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    world.source.step()
    world.log.flush(Part([put(1, S + 5), put(3, S + 15)]), store_id=2)
    world.log.checkpoint(S + 20)
    assert world.source.step()
    world.log.flush(Part([put(2, S + 6)]), store_id=2)
    world.log.checkpoint(S + 30)
    with pytest.raises(SourceStopped, match="invariant 5") as stopped:
        world.source.step()
    assert row_key(5, 2).hex() in str(stopped.value)
    assert world.watermarks() == [S + 10, S + 20]


def test_objects_that_no_metadata_names_and_other_names_are_ignored() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.objects.put("v1/20261120/14/1/orphan.log", b"of a flush that failed")
    world.log.objects.put("v1/backupmeta/note.txt", b"?")
    world.log.objects.put("v1/backupmeta/folder/1.meta", b"?")
    world.log.objects.put("v1/global_checkpoint/1.tmp", b"?")
    world.log.checkpoint(S + 10)
    assert world.source.step()
    assert len(world.found()) == 1


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.UNANSWERED, Fault.DELAYED])
def test_a_record_whose_put_goes_wrong_is_decided_once(fault: Fault) -> None:
    world = World()
    store = FaultyObjectStore(world.objects, [fault])
    source = world.adapter(store)
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    for _ in range(3):
        with suppress(Unavailable, CommitStateUnknown):
            source.step()
        store.deliver()
    assert world.watermarks() == [S + 10]
    newest = ReleaseLog(world.objects, TENANT).newest()
    assert newest is not None
    assert newest.number == 1


def test_a_large_window_is_cut_between_commits_and_a_large_commit_by_keys() -> None:
    world = World(SourceRules(FileLimits(10, 1 << 20), shard_bytes_min=200, shard_bytes_max=200))
    many = [put(number, S + 500, b"x" * 20) for number in range(40)]
    few = [put(number, S + 100 + number, b"y") for number in range(12)]
    world.log.flush(Part(few), Part(many), Part([put(3, S + 900, b"z")]))
    world.log.checkpoint(S + 1_000)
    assert world.source.step()
    files = list(world.objects.list_after(layout.change_file_prefix(TENANT, 0)))
    assert len(files) > 4
    assert world.watermarks() == sorted(set(world.watermarks()))
    assert world.watermarks()[-1] == S + 1_000
    assert S + 500 in world.watermarks()
    opened = [open_change_file(world.objects, info.key) for info in files]
    assert [one.prev_ts for one in opened] == [0, *(one.ts for one in opened[:-1])]
    assert sum(not one.watermark_groups for one in opened) > 0
    rows = world.found()
    assert len(rows) == 53
    assert rows[-1] == (row_key(5, 3), S + 900, 1, b"z", b"x" * 20)
    assert {row[:2]: row[4] for row in rows}[row_key(5, 3), S + 500] == b"y"
    before = {info.key: world.objects.get(info.key) for info in files}
    for key in before:
        world.objects.delete(key)
    world.adapter().execute(ReleaseLog(world.objects, TENANT).read(1))
    assert {key: world.objects.get(key) for key in before} == before


def test_a_restart_writes_what_was_decided_and_not_written() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    world.source.step()
    [file] = [info.key for info in world.objects.list_after(layout.change_file_prefix(TENANT, 0))]
    body = world.objects.get(file)
    world.objects.delete(file)
    world.reached = S
    again = world.adapter()
    assert again.step()
    assert world.objects.get(file) == body
    assert not again.step()


def test_a_restart_does_not_write_again_what_was_consumed_and_deleted() -> None:
    world = World()
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    world.source.step()
    for info in list(world.objects.list_after(layout.change_file_prefix(TENANT, 0))):
        world.objects.delete(info.key)
    assert not world.adapter().step()
    assert world.watermarks() == []

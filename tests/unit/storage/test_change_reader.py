from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from support import change_files
from support.small_files import CHANGES, KEY, change, sound, watermark
from tistream.errors import CorruptObject, NotFoundYet
from tistream.format.change_file import CHANGE_COLUMNS, ChangeFile, ChangeRowGroup
from tistream.pool.footers import FooterCache
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_changes, read_watermarks
from tistream.storage.measured import MeasuredObjectStore


@dataclass(frozen=True)
class Reference:
    """A file as it comes over the wire: without its footer."""

    key: str
    size: int
    footer_start: int
    groups: tuple[ChangeRowGroup, ...]

    @classmethod
    def to(cls, file: ChangeFile) -> Reference:
        return cls(file.key, file.size, file.footer_start, file.groups)


@pytest.fixture
def objects() -> MeasuredObjectStore:
    return MeasuredObjectStore(MemoryObjectStore())


def requests(objects: MeasuredObjectStore) -> int:
    return objects.traffic()["get"].requests


def large() -> bytes:
    """Three row groups of some 250 KB that do not compress."""
    rows = [change(b"k%05d" % number, value=os.urandom(250)) for number in range(3000)]
    return change_files.change_file("7", "acme", 4, 999, changes=rows, watermarks=[watermark()], rows_per_group=1000)


def test_a_small_file_is_one_request(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, sound())
    file = open_change_file(objects, KEY)
    assert read_watermarks(objects, file).column("resolved_ts").to_pylist() == [900]
    rows = read_changes(objects, file, [0, 1, 2])
    assert rows.column_names == list(CHANGE_COLUMNS)
    assert rows.column("key").to_pylist() == [row["key"] for row in CHANGES]
    assert rows.column("old_value").null_count == len(CHANGES)
    assert requests(objects) == 1


def test_a_long_footer_is_two_requests(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, sound())
    file = open_change_file(objects, KEY, tail_bytes=50)
    assert requests(objects) == 2
    assert file == open_change_file(objects, KEY)


def test_row_groups_are_fetched_alone(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, large())
    file = open_change_file(objects, KEY)
    read_watermarks(objects, file)
    assert requests(objects) == 1
    before = objects.traffic()["get"].read_bytes
    rows = read_changes(objects, file, [1], ["key", "type"])
    assert rows.column("key").to_pylist() == [b"k%05d" % number for number in range(1000, 2000)]
    assert rows.column_names == ["type", "key"]
    assert objects.traffic()["get"].read_bytes - before == file.groups[1].length
    assert requests(objects) == 2


def test_references_need_no_footer_in_hand(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, large())
    file = open_change_file(objects, KEY)
    before = requests(objects)
    found = read_changes(objects, Reference.to(file), [2, 0])
    assert requests(objects) - before == 2  # row group 0; row group 2 together with the footer behind it
    assert found.equals(read_changes(objects, file, [2, 0]))
    assert read_changes(objects, Reference.to(file), []).num_rows == 0


def test_a_footer_that_is_kept_is_not_read_again(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, large())
    file, footers = Reference.to(open_change_file(objects, KEY)), FooterCache()
    first = read_changes(objects, file, [0], footers=footers)
    requested, read = requests(objects), objects.traffic()["get"].read_bytes
    assert read_changes(objects, file, [0], footers=footers).equals(first)
    assert requests(objects) - requested == 1
    assert objects.traffic()["get"].read_bytes - read == file.groups[0].length
    objects.put(KEY, b"another" + large())  # another file under the same key: its footer is read
    other = replace(file, size=file.size + 7, footer_start=file.footer_start + 7)
    with pytest.raises(CorruptObject, match="row group 0"):
        read_changes(objects, other, [0], footers=footers)


def test_the_footer_of_a_bad_row_group_is_not_kept(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, change_files.flipped_change_group(sound()))
    file, footers = Reference.to(open_change_file(objects, KEY)), FooterCache()
    with pytest.raises(CorruptObject, match="CRC-32"):
        read_changes(objects, file, [0], footers=footers)
    assert footers.get(KEY) is None
    assert read_changes(objects, file, [1], footers=footers).num_rows == 4
    with pytest.raises(CorruptObject, match="CRC-32"):
        read_changes(objects, file, [0], footers=footers)


def test_a_flipped_bit_fails_its_crc(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, change_files.flipped_change_group(sound()))
    file = open_change_file(objects, KEY)
    for source in (file, Reference.to(file)):
        with pytest.raises(CorruptObject, match="row group 0 fails its CRC-32"):
            read_changes(objects, source, [0])
        assert read_changes(objects, source, [1]).num_rows == 4
    objects.put(KEY, change_files.flipped_watermark_group(sound()))
    with pytest.raises(CorruptObject, match="row group 3 fails its CRC-32"):
        read_watermarks(objects, open_change_file(objects, KEY))


def test_a_replaced_file_is_noticed(objects: MeasuredObjectStore) -> None:
    objects.put(KEY, sound())
    reference = Reference.to(open_change_file(objects, KEY))
    objects.put(KEY, sound(changes=CHANGES[:5]))
    with pytest.raises(CorruptObject):
        read_changes(objects, reference, [1])
    objects.put(KEY, sound()[:-1])
    with pytest.raises(CorruptObject, match="truncated"):
        read_changes(objects, reference, [1])
    objects.put(KEY, sound(changes=[change(b"x%02d" % number) for number in range(10)]))
    with pytest.raises(CorruptObject, match="CRC-32"):
        read_changes(objects, reference, [1])


def test_a_footer_that_lies_about_keys_is_noticed(objects: MeasuredObjectStore) -> None:
    data = sound()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    objects.put(KEY, data[:start] + data[start:].replace(b"k07", b"k05"))
    file = open_change_file(objects, KEY)
    assert file.groups[1].key_max == b"k05"
    with pytest.raises(CorruptObject, match="outside of the bounds"):
        read_changes(objects, file, [1])


def test_watermarks_among_changes_are_refused(objects: MeasuredObjectStore) -> None:
    groups = change_files.groups_of(sound())
    metadata = {k: v for k, v in change_files.metadata_of(sound()).items() if k != change_files.CRC}
    objects.put(KEY, change_files.encode([groups[3], *groups[:3]], metadata))
    file = open_change_file(objects, KEY)
    with pytest.raises(CorruptObject, match="type 100"):
        read_changes(objects, file, [0])
    with pytest.raises(CorruptObject, match="type 1"):
        read_watermarks(objects, file)


def in_another_form(group: pa.Table) -> pa.Table:
    """The same rows: no old_value, an unknown column, a large key, `after` with its members the other way round."""
    element = pa.struct([("log_index", pa.int64()), ("region_id", pa.int64())])
    logs = [entry and [dict(reversed(log.items())) for log in entry] for entry in group.column("after").to_pylist()]
    key = group.column("key").cast(pa.large_binary())
    kept = group.drop_columns(["after", "old_value", "key"])
    kept = kept.append_column("after", pa.array(logs, pa.large_list(element)))
    return kept.append_column("key", key).append_column("unknown", key)


def test_other_arrow_forms_and_missing_columns_read_the_same(objects: MeasuredObjectStore) -> None:
    data = sound(watermarks=[watermark(after=[{"region_id": 3, "log_index": 4}]), watermark(after=None)])
    objects.put(KEY, data)
    plain = open_change_file(objects, KEY)
    groups = [in_another_form(group) for group in change_files.groups_of(data)]
    metadata = {k: v for k, v in change_files.metadata_of(data).items() if k != change_files.CRC}
    objects.put(KEY, change_files.encode(groups, metadata))
    other = open_change_file(objects, KEY)
    found = read_changes(objects, other, [0, 1, 2]), read_watermarks(objects, other)
    objects.put(KEY, data)
    assert found[0].equals(read_changes(objects, plain, [0, 1, 2]))
    assert found[1].equals(read_watermarks(objects, plain))


def test_what_is_no_change_file(objects: MeasuredObjectStore) -> None:
    with pytest.raises(NotFoundYet):
        open_change_file(objects, KEY)
    objects.put("elsewhere", sound())
    with pytest.raises(CorruptObject, match="not named as a change file"):
        open_change_file(objects, "elsewhere")

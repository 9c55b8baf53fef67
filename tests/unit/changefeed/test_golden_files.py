"""Files of a feed over a golden set: TiCDC's schema files, each row once and in order, also after a kill."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from support import golden_kafka
from support.feed_batches import golden_window
from support.feed_files import Killed, MortalStore, data_files, holder_of_files, indexed_files, schema_files_of
from support.feed_run import finish
from support.pull_world import World, golden_world
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.messages import Encoder

# How often a worker is killed: before the call of the store with this number, counted from its start.
KILLS = (3, 40, 300)
FORMATS: dict[str, tuple[str, Encoder, bytes]] = {
    "csv": ("protocol=csv&flush-interval=100ms&file-size=20000", CsvEncoder(CsvOptions()), b""),
    "canal-json": (
        "protocol=canal-json&enable-tidb-extension=true&enable-partition-separator=false&date-separator=none",
        CanalJson(CanalOptions(enable_tidb_extension=True)),
        b"\r\n",
    ),
}


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


@pytest.mark.parametrize("name", FORMATS)
def test_files_have_each_row_once_and_in_order_though_workers_are_killed(name: str, world: World) -> None:
    options, encoder, end = FORMATS[name]
    objects = MemoryObjectStore()
    for epoch, last in enumerate(KILLS, 1):
        with pytest.raises(Killed):
            finish(holder_of_files(world, options, MortalStore(objects, last), epoch))  # type: ignore[arg-type]
    holder = holder_of_files(world, options, objects, len(KILLS) + 1)
    finish(holder)
    found: defaultdict[tuple[str, ...], bytes] = defaultdict(bytes)
    for directory, files in sorted(indexed_files(objects)):
        database, table, version, *levels = directory.split("/")
        assert int(version) > world.snapshot_ts
        dates = [level for level in levels if "-" in level]
        assert len(dates) == (name == "csv")
        found[database, table, *(level for level in levels if "-" not in level)] += b"".join(files)
    assert dict(found) == expected(encoder, end, by_partition=name == "csv")
    assert len(data_files(objects)) == sum(len(files) for _, files in indexed_files(objects))
    assert json.loads(objects.get("metadata"))["checkpoint-ts"] == world.end_ts
    assert holder.report().checkpoint_ts == world.end_ts


def test_an_event_that_a_person_skips_is_a_dead_letter_and_in_no_file(world: World) -> None:
    batch = next(one for one in golden_window(numbered=False).batches if one.version.name == ("shop", "orders"))
    skip = Skip(commit_ts=int(batch.commit_ts[0]), table="shop.orders", key=batch.raw[0].as_py().hex(), reason="wrong")
    document = {"filter": {"rules": ["shop.orders"]}}
    plain, skipping = MemoryObjectStore(), MemoryObjectStore()
    finish(holder_of_files(world, "protocol=csv", plain, document=document))
    for epoch, last in enumerate((5, 20), 1):
        with pytest.raises(Killed):
            finish(holder_of_files(world, "protocol=csv", MortalStore(skipping, last), epoch, document, [skip]))  # type: ignore[arg-type]
    holder = holder_of_files(world, "protocol=csv", skipping, 3, document, [skip])
    finish(holder)
    assert holder.report().skipped == 1
    (key,) = [info.key for info in skipping.list_after("tistream-dead-letters/")]
    letter = json.loads(skipping.get(key))
    assert (letter["table"], letter["key"], letter["reason"]) == ("shop.orders", skip.key, "wrong")
    lines = [
        sorted(line for _, files in indexed_files(one) for line in b"".join(files).splitlines())
        for one in (plain, skipping)
    ]
    assert len(lines[0]) - 1 == len(lines[1])
    assert set(lines[1]) < set(lines[0])


def test_a_window_is_a_directory_whose_manifest_names_its_files_though_workers_are_killed(world: World) -> None:
    options, encoder, end = FORMATS["csv"]
    objects = MemoryObjectStore()
    for epoch, last in enumerate(KILLS, 1):
        with pytest.raises(Killed):
            finish(holder_of_files(world, f"{options}&layout=window", MortalStore(objects, last), epoch))  # type: ignore[arg-type]
    finish(holder_of_files(world, f"{options}&layout=window", objects, len(KILLS) + 1))
    found: defaultdict[tuple[str, ...], bytes] = defaultdict(bytes)
    named, ends = set(), []
    for info in objects.list_after("tistream-windows/"):
        window, is_manifest, _ = info.key.rpartition("/manifest.json")
        if not is_manifest:
            continue
        manifest = json.loads(objects.get(info.key))
        assert int(window.split("/")[1].split("-")[0]) < int(manifest["through_ts"])
        ends.append(int(manifest["through_ts"]))
        for name in manifest["files"]:
            database, table, _, *levels, _ = name.split("/")
            found[database, table, *(level for level in levels if "-" not in level)] += objects.get(f"{window}/{name}")
            named.add(f"{window}/{name}")
    assert dict(found) == expected(encoder, end, by_partition=True)
    assert (named, ends) == (data_files(objects), sorted(ends))
    assert len(ends) > len(KILLS)
    assert not list(indexed_files(objects))


def expected(encoder: Encoder, end: bytes, *, by_partition: bool) -> dict[tuple[str, ...], bytes]:
    """The lines of each table, or of each partition, in order."""
    lines: dict[tuple[str, ...], list[tuple[int, int, bytes]]] = defaultdict(list)
    for number, batch in enumerate(golden_window(numbered=encoder.numbered).batches):
        parted = by_partition and batch.version.head.partition_ids is not None
        place = (*batch.version.name, str(batch.physical_id)) if parted else batch.version.name
        values = encoder.rows(batch).values.to_pylist()
        # The batches of a later window come later; `at` numbers the events within a window
        stamps = zip(batch.commit_ts.tolist(), batch.at.tolist(), values, strict=True)
        lines[place] += [(ts, at, value + end) for ts, at, value in stamps]
        assert number < 1 << 20
    return {place: b"".join(value for _, _, value in sorted(found)) for place, found in lines.items()}


def test_schema_files_are_ticdcs(world: World) -> None:
    """Each but for the statement, which is the user's, and the version, which may be earlier. TiCDC splits RENAME
    TABLES, of which it writes the file of one table twice."""
    theirs = golden_kafka.lines("storage_schema")
    objects = MemoryObjectStore()
    finish(holder_of_files(world, "protocol=csv", objects))
    ours = schema_files_of(objects)
    with_statement = {key: body for key, body in ours.items() if json.loads(body)["Query"]}
    assert sorted(map(unversioned, ours)) == sorted(
        {line["path"]: unversioned(line["path"]) for line in theirs}.values()
    )
    stamps = sorted(json.loads(body)["TableVersion"] for body in with_statement.values())
    their_stamps = sorted({line["i"]: json.loads(line["v"])["TableVersion"] for line in theirs}.values())
    assert all(our <= their for our, their in zip(stamps, their_stamps, strict=True))
    left = defaultdict(list)
    for key, body in ours.items():
        left[unversioned(key)].append(body)
    for line in theirs:
        matching = [body for body in left[unversioned(line["path"])] if like(body, line["v"])]
        assert matching, line["path"]


def unversioned(key: str) -> str:
    """The key of a schema file without its version."""
    directory, _, name = key.rpartition("/")
    return f"{directory}/{name.split('_')[2]}"


def like(body: bytes, theirs: str) -> bool:
    """Whether a schema file is TiCDC's, byte by byte, but for the statement, its kind and the version."""
    members, their_members = json.loads(body), json.loads(theirs)
    text = body.decode()
    for name in ("TableVersion", "Query", "Type"):
        ours, other = (json.dumps(one[name], ensure_ascii=False) for one in (members, their_members))
        text = text.replace(f'"{name}": {ours}', f'"{name}": {other}', 1)
    return json.loads(text) == their_members and len(text.splitlines()) == len(theirs.splitlines())

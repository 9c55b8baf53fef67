"""Answers that are lost between the S3 client and a real MinIO: what the client says, what is there, and how those who
commit settle it."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import orjson
import pytest

from support.manifest_holder import TASK, TENANT, Holder
from support.minio import Minio
from support.moto_server import Moto
from support.tls_wire import tls_wired
from support.wire import Fate, Wire, wired
from tistream.errors import CommitConflict, CommitStateUnknown, Fenced, NotFoundYet, Unavailable
from tistream.storage import layout
from tistream.storage.backends.s3 import S3ObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream_schema.durable_log import DurableLog

MIB = 1 << 20
PARTS = {"multipart_bytes": 5 * MIB, "part_bytes": 5 * MIB}
LARGE, OTHER_LARGE = (random.Random(seed).randbytes(6 * MIB) for seed in (1, 2))
SMALL = b"body"
GIVES_UP_S = 10  # where nothing is to come
SIZES = pytest.mark.parametrize(("step", "body"), [("PUT", SMALL), ("complete", LARGE)], ids=["small", "in-parts"])


@pytest.fixture
def bucket(minio: Minio) -> str:
    return minio.new_bucket()


@pytest.fixture
def store(request: pytest.FixtureRequest, minio: Minio, wire: Wire, bucket: str) -> S3ObjectStore:
    """Over the wire; the conditions have been tried."""
    return tried(minio.store(bucket, endpoint=wire.endpoint, **PARTS), *_bodies(request))


@pytest.fixture
def facing(
    request: pytest.FixtureRequest, minio: Minio, wire: Wire, bucket: str, store: S3ObjectStore
) -> S3ObjectStore:
    """The store that meets the fates of the test: where nothing is to come, one that gives up soon. On a slow machine
    that one may give up too early as well, which costs attempts."""
    given = getattr(request.node, "callspec", None)
    if given is None or not any(Fate.SILENT in (one, *_listed(one)) for one in given.params.values()):
        return store
    return tried(minio.store(bucket, endpoint=wire.endpoint, read_seconds=GIVES_UP_S, **PARTS), *_bodies(request))


def _bodies(request: pytest.FixtureRequest) -> tuple[bytes, ...]:
    given = getattr(request.node, "callspec", None)
    return (SMALL,) if given is not None and given.params.get("body") == SMALL else (SMALL, LARGE)


def tried(made: S3ObjectStore, *bodies: bytes) -> S3ObjectStore:
    """The store, once it has tried its conditions with the bodies."""
    for body in bodies:
        for number in count():
            key = f"before-{id(made)}-{len(body)}-{number}"
            try:
                made.put_new(key, body)
                made.put_if(key, body, made.head(key).version)
                break
            except (CommitStateUnknown, Unavailable):
                assert number < 50, "the store does not answer in time"
    return made


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


@pytest.fixture
def truth(minio: Minio, bucket: str) -> S3ObjectStore:
    """Straight to the server."""
    return minio.store(bucket)


def is_there(store: S3ObjectStore, key: str) -> bool:
    return bool(list(store.list_after(key)))


# --- conditional puts: one attempt, and "unknown" --------------------------------------------------------------------


@SIZES
@pytest.mark.parametrize("fate", [Fate.UNANSWERED, Fate.SILENT])
def test_a_put_new_that_was_done_and_not_answered_is_found_by_putting_again(
    wire: Wire, store: S3ObjectStore, facing: S3ObjectStore, truth: S3ObjectStore, step: str, body: bytes, fate: Fate
) -> None:
    wire.befall(step, fate)
    with pytest.raises(CommitStateUnknown, match=r"PutObject with IfNoneMatch s3://"):
        facing.put_new("k", body)
    assert wire.made(step, "k") == 1
    assert truth.get("k") == body
    with pytest.raises(CommitConflict):
        store.put_new("k", body)
    assert store.get("k") == body


def test_a_put_new_whose_answer_tls_cannot_read_may_have_been_done(guarded: Minio) -> None:
    bucket = guarded.new_bucket()
    truth = guarded.store(bucket)
    with tls_wired(guarded.port) as wire:
        store = guarded.store(bucket, endpoint=wire.endpoint)
        store.put_new("before", SMALL)
        wire.damage(lambda _said: is_there(truth, "k"))
        with pytest.raises(CommitStateUnknown):
            store.put_new("k", SMALL)
        assert wire.damaged == 1
        assert truth.get("k") == SMALL
        with pytest.raises(CommitConflict):
            store.put_new("k", SMALL)


@SIZES
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.SLOWED, Fate.CONFLICTING])
def test_a_put_new_that_never_arrived_happens_when_it_is_put_again(
    wire: Wire, store: S3ObjectStore, truth: S3ObjectStore, step: str, body: bytes, fate: Fate
) -> None:
    wire.befall(step, fate)
    with pytest.raises(CommitStateUnknown):
        store.put_new("k", body)
    assert wire.made(step, "k") == 1
    with pytest.raises(NotFoundYet):
        truth.get("k")
    store.put_new("k", body)
    assert truth.get("k") == body


@SIZES
def test_a_put_new_that_was_not_answered_is_lost_to_one_that_was_first(
    wire: Wire, store: S3ObjectStore, truth: S3ObjectStore, step: str, body: bytes
) -> None:
    truth.put_new("k", b"another's")
    wire.befall(step, Fate.UNANSWERED)
    with pytest.raises(CommitStateUnknown):
        store.put_new("k", body)
    with pytest.raises(CommitConflict):
        store.put_new("k", body)
    assert store.get("k") == b"another's"


@SIZES
def test_a_put_new_that_comes_late_overwrites_nobody(
    minio: Minio, bucket: str, wire: Wire, store: S3ObjectStore, truth: S3ObjectStore, step: str, body: bytes
) -> None:
    wire.befall(step, Fate.DELAYED)
    with pytest.raises(CommitStateUnknown):
        store.put_new("k", body)
    truth.put_new("k", b"another's")
    assert wire.deliver() == [412]
    assert truth.get("k") == b"another's"
    assert minio.uploads_left(bucket, "k") == []


def test_an_upload_that_was_completed_is_not_said_to_be_left(moto: Moto, caplog: pytest.LogCaptureFixture) -> None:
    """As S3 does, moto answers 404 to who aborts it."""
    with wired(moto.port) as wire:
        store = moto.store(moto.new_bucket(), endpoint=wire.endpoint, **PARTS)
        store.put_new("before", LARGE)
        wire.befall("complete", Fate.UNANSWERED)
        with pytest.raises(CommitStateUnknown):
            store.put_new("k", LARGE)
        assert wire.made("abort", "k") == 1
    assert [record.message for record in caplog.records if "abort" in record.message] == []


def test_an_upload_given_up_is_not_completed_later(wire: Wire, store: S3ObjectStore, truth: S3ObjectStore) -> None:
    wire.befall("complete", Fate.DELAYED)
    with pytest.raises(CommitStateUnknown):
        store.put_new("k", LARGE)
    assert wire.deliver() == [404]
    with pytest.raises(NotFoundYet):
        truth.get("k")


@pytest.mark.parametrize("step", ["begin", "part"])
def test_before_its_last_request_nothing_can_have_happened(
    minio: Minio, bucket: str, wire: Wire, store: S3ObjectStore, step: str
) -> None:
    wire.befall(step, *[Fate.LOST] * 4)
    with pytest.raises(Unavailable):
        store.put_new("k", LARGE)
    assert minio.uploads_left(bucket, "k") == []
    store.put_new("k", LARGE)
    assert store.get("k") == LARGE


@SIZES
@pytest.mark.parametrize("fate", [Fate.UNANSWERED, Fate.LOST])
def test_a_put_if_without_an_answer_shows_in_the_version(
    wire: Wire, store: S3ObjectStore, truth: S3ObjectStore, step: str, body: bytes, fate: Fate
) -> None:
    truth.put_new("k", b"0")
    seen = store.head("k").version
    wire.befall(step, fate)
    with pytest.raises(CommitStateUnknown):
        store.put_if("k", body, seen)
    assert wire.made(step, "k") == 1
    if fate is Fate.UNANSWERED:
        with pytest.raises(CommitConflict):
            store.put_if("k", body, seen)
    else:
        store.put_if("k", body, seen)
    assert truth.get("k") == body
    assert truth.head("k").version != seen


# --- large puts without a condition: read back by size and checksum ---------------------------------------------------


@pytest.mark.parametrize(
    "fates",
    [
        pytest.param([Fate.UNANSWERED], id="lost"),
        pytest.param([Fate.SILENT], id="silent"),
        pytest.param([Fate.UNANSWERED] * 4, id="all lost"),
        pytest.param([Fate.LOST], id="never sent"),
    ],
)
def test_a_large_put_whose_last_answer_is_lost_is_read_back(
    minio: Minio, bucket: str, wire: Wire, facing: S3ObjectStore, truth: S3ObjectStore, fates: list[Fate]
) -> None:
    truth.put("k", LARGE[::-1])
    before = wire.made("complete")
    wire.befall("complete", *fates)
    facing.put("k", LARGE)
    assert wire.made("complete") > before
    assert truth.get("k") == LARGE
    assert minio.uploads_left(bucket, "k") == []


def test_what_was_there_before_is_not_taken_for_what_was_put(
    minio: Minio, bucket: str, wire: Wire, store: S3ObjectStore, truth: S3ObjectStore
) -> None:
    minio.store(bucket, **PARTS).put("k", OTHER_LARGE)
    wire.befall("complete", *[Fate.LOST] * 4)
    with pytest.raises(Unavailable):
        store.put("k", LARGE)
    assert truth.get("k") == OTHER_LARGE
    assert minio.uploads_left(bucket, "k") == []


def test_a_large_put_that_cannot_be_read_back_is_not_done(wire: Wire, store: S3ObjectStore) -> None:
    wire.befall("complete", *[Fate.UNANSWERED] * 4)
    wire.befall("HEAD", *[Fate.LOST] * 4)
    with pytest.raises(Unavailable):
        store.put("k", LARGE)
    store.put("k", LARGE)
    assert store.get("k") == LARGE


# --- reads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED, Fate.SILENT, Fate.CUT, Fate.SLOWED])
@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "in-parts"])
def test_a_read_goes_on_until_it_has_all_of_it(
    wire: Wire, facing: S3ObjectStore, truth: S3ObjectStore, fate: Fate, body: bytes
) -> None:
    truth.put("k", body)
    wire.befall("GET", fate)
    assert facing.get("k") == body
    wire.befall("GET", fate)
    assert facing.get_range("k", 1, len(body)) == body[1:]
    wire.befall("GET", fate)
    assert facing.get_tail("k", 3) == (body[-3:], len(body))
    made = wire.made("GET", "k")
    assert made == 6 or (fate is Fate.SILENT and made > 6)


def test_a_body_that_tls_cannot_read_is_read_again(guarded: Minio) -> None:
    bucket = guarded.new_bucket()
    guarded.store(bucket).put("k", LARGE)
    with tls_wired(guarded.port) as wire:
        store = guarded.store(bucket, endpoint=wire.endpoint)
        assert store.head("k").size == len(LARGE)
        wire.damage(lambda said: said > MIB)
        assert store.get("k") == LARGE
        assert wire.damaged == 1


def test_a_read_that_always_breaks_off_is_unavailable(wire: Wire, store: S3ObjectStore, truth: S3ObjectStore) -> None:
    truth.put("k", SMALL)
    wire.befall("GET", *[Fate.CUT] * 3)
    with pytest.raises(Unavailable, match="GetObject s3://"):
        store.get("k")


# --- those who commit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.UNANSWERED, Fate.SILENT, Fate.LOST, Fate.SLOWED, Fate.DELAYED, Fate.CONFLICTING])
def test_a_manifest_without_an_answer_is_settled_at_its_number(
    wire: Wire, facing: S3ObjectStore, truth: S3ObjectStore, fate: Fate
) -> None:
    holder = Holder(facing, "a", 1).claim()
    wire.befall("PUT", fate)
    one = holder.commit("one")
    wire.deliver()
    two = holder.commit("two")
    assert (one.number, two.number) == (2, 3)
    view = TaskObjects(truth, TENANT, TASK).follow()
    assert [found.key for found in view.segments] == ["segment/one", "segment/two"]


def test_a_manifest_without_an_answer_that_lost_is_fenced(
    wire: Wire, store: S3ObjectStore, truth: S3ObjectStore
) -> None:
    old = Holder(store, "old", 1).claim()
    Holder(truth, "new", 2).claim().commit("theirs")
    wire.befall("PUT", Fate.UNANSWERED)
    with pytest.raises(Fenced):
        old.commit("ours")
    view = TaskObjects(truth, TENANT, TASK).follow()
    assert [found.key for found in view.segments] == ["segment/theirs"]


@pytest.mark.parametrize("seed", range(3))
def test_writers_that_lose_answers_agree_on_every_number(minio: Minio, bucket: str, seed: int) -> None:
    """Three registries append to one log, each over a wire of its own on which any conditional put may go wrong."""
    truth, ends = minio.store(bucket), 12
    truth.put(layout.schema_snap(TENANT), orjson.dumps({"version": 1, "snapshot_ts": 10, "databases": []}))

    def written(name: str) -> list[str]:
        chance = random.Random(f"{seed} {name}")
        fates = [Fate.ANSWERED, Fate.UNANSWERED, Fate.LOST, Fate.SLOWED, Fate.DELAYED]
        with wired(minio.port) as wire:
            store = minio.store(bucket, endpoint=wire.endpoint)
            store.put_new(f"before/{name}", b"")
            log = DurableLog(store, TENANT, name, lambda _seconds: None)
            nonces = [found.nonce for found in log.begin()]
            while log.number < ends:
                wire.befall("PUT", *chance.choices(fates, k=2), Fate.ANSWERED)
                nonces += [found.nonce for found in log.append(log.high_ts + 1, ())]
                wire.deliver()
        return nonces

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(written, ["one", "two", "three"]))
    reader = DurableLog(truth, TENANT, "reader", lambda _seconds: None)
    assert told == [[found.nonce for found in reader.catch_up()]] * 3
    assert reader.number == ends

"""`python -m spikes.object_clients`: obstore beside tistream.storage, on a real MinIO (docs/adr/0027).

Needs `pip install obstore`, which is no dependency of the project. Prints tables: time, requests on the wire, what each
client does when answers are lost, and what a key for each tenant takes. Times are of this process; MinIO has its own.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore  # type: ignore[import-not-found,unused-ignore]
from obstore.store import S3Store  # type: ignore[import-not-found,unused-ignore]

from support.certificates import Authority
from support.minio import REGION, Minio
from support.wire import Fate, Wire, wired

SMALL, MIDDLE, LARGE = 4 << 10, 1 << 20, 64 << 20
OBJECTS, ROUNDS = 1_000, 3
PART = 16 << 20
SHOWN = 300  # characters of an error
KEYS = 200  # tenants with a key of their own
ONCE = {"max_retries": 0}
SOON = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=20)},
}

Act = Callable[[], object]


def theirs(server: Minio, bucket: str, endpoint: str = "", **options: Any) -> Any:
    """An obstore client of a bucket, with the same patience as ours."""
    patience = {"timeout": timedelta(seconds=60), "connect_timeout": timedelta(seconds=3), "allow_http": True}
    client_options = patience | options.pop("client_options", {})
    return S3Store(
        bucket,
        endpoint=endpoint or server.endpoint,
        region=REGION,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        client_options=client_options,
        **options,
    )


def row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def timed(act: Act) -> str:
    """The least processor time of ROUNDS runs, and the wall time of that run, in ms."""
    found = []
    for _ in range(ROUNDS):
        wall, processor = time.monotonic_ns(), time.process_time_ns()
        act()
        found.append(((time.process_time_ns() - processor) / 1e6, (time.monotonic_ns() - wall) / 1e6))
    return "{:.0f} ms, {:.0f} ms".format(*min(found))


def times(server: Minio) -> None:
    """Processor and wall time."""
    bucket = server.new_bucket()
    small, large = random.Random(1).randbytes(SMALL), random.Random(2).randbytes(LARGE)
    numbers = itertools.count()
    ours = server.store(bucket)
    others = [
        theirs(server, bucket, **more) for more in ({}, {"unsigned_payload": True}, {"checksum_algorithm": "SHA256"})
    ]
    ours.put("one", small)
    ours.put("large", large)
    ours.put("middle", large[:MIDDLE])

    def put_small(put: Callable[[str, bytes], object]) -> str:
        return timed(lambda: [put(f"small/{next(numbers)}", small) for _ in range(OBJECTS)])

    def read(key: str) -> bytes:
        return bytes(obstore.get(others[0], key).bytes())

    def read_range(key: str) -> bytes:
        return bytes(obstore.get_range(others[0], key, start=5, length=MIDDLE))

    def many(count: int, get: Callable[[str], object], key: str) -> str:
        return timed(lambda: [get(key) for _ in range(count)])

    in_parts: dict[str, Any] = {"chunk_size": PART, "max_concurrency": 1}
    row("processor, wall", "ours (boto3)", "obstore", "obstore, body unsigned", "obstore, with SHA-256")
    row(*["---"] * 5)
    row(f"{OBJECTS} puts of 4 KiB", put_small(ours.put), *(put_small(partial(obstore.put, one)) for one in others))
    created = (put_small(partial(obstore.put, one, mode="create")) for one in others)
    row(f"{OBJECTS} puts of 4 KiB, if absent", put_small(ours.put_new), *created)
    row(f"{OBJECTS} gets of 4 KiB", many(OBJECTS, ours.get, "one"), many(OBJECTS, read, "one"), "", "")
    row("100 gets of a MiB", many(100, ours.get, "middle"), many(100, read, "middle"), "", "")
    own_range = partial(ours.get_range, start=5, length=MIDDLE)
    row("100 ranges of a MiB", many(100, own_range, "large"), many(100, read_range, "large"), "", "")
    put_large = (timed(partial(obstore.put, one, "large", large, **in_parts)) for one in others)
    row("put of 64 MiB in parts of 16 MiB", timed(partial(ours.put, "large", large)), *put_large)
    row("get of 64 MiB", many(1, ours.get, "large"), many(1, read, "large"), "", "")


def requests(server: Minio) -> None:
    """Requests that each operation sends, by method or step of an upload."""
    bucket = server.new_bucket()
    small, large = random.Random(1).randbytes(SMALL), random.Random(2).randbytes(LARGE)
    with wired(server.port) as wire:
        ours, other = server.store(bucket, endpoint=wire.endpoint), theirs(server, bucket, wire.endpoint)
        ours.put_new("probe", small)  # the probes of conditions are once for a process
        ours.put_if("probe", small, ours.head("probe").version)
        ours.put_new("probe-large", large)
        ours.put("theirs", small)
        version, their_version = ours.head("probe").version, ours.head("theirs").version

        def sent(act: Act) -> str:
            before = len(wire.requests)
            act()
            steps = Counter(one.operation for one in wire.requests[before:])
            return ", ".join(f"{count} {name}" for name, count in steps.items())

        def both(name: str, own: Act, obstores: Act) -> None:
            row(name, sent(own), sent(obstores))

        row("operation", "ours", "obstore")
        row(*["---"] * 3)
        both("put", partial(ours.put, "a", small), partial(obstore.put, other, "a", small))
        both("put if absent", partial(ours.put_new, "b", small), partial(obstore.put, other, "c", small, mode="create"))
        unchanged = partial(obstore.put, other, "theirs", small, mode={"e_tag": their_version})
        both("put if unchanged", partial(ours.put_if, "probe", small, version), unchanged)
        both("get", partial(ours.get, "a"), lambda: obstore.get(other, "a").bytes())
        both(
            "get a range", partial(ours.get_range, "a", 1, 9), partial(obstore.get_range, other, "a", start=1, length=9)
        )
        tail: Any = {"range": {"suffix": 9}}
        both("get the tail", partial(ours.get_tail, "a", 9), lambda: obstore.get(other, "a", options=tail).bytes())
        both("head", partial(ours.head, "a"), partial(obstore.head, other, "a"))
        both(
            "head of nothing",
            partial(outcome, partial(ours.head, "0")),
            partial(outcome, partial(obstore.head, other, "0")),
        )
        both("list", lambda: list(ours.list_after("")), lambda: list(obstore.list(other)))
        both("put 64 MiB", partial(ours.put, "l", large), partial(obstore.put, other, "l", large, chunk_size=PART))
        created = partial(obstore.put, other, "n", large, chunk_size=PART, mode="create")
        both("put 64 MiB if absent", partial(ours.put_new, "m", large), created)
        both("delete", partial(ours.delete, "a"), partial(obstore.delete, other, "b"))


def outcome(act: Act) -> str:
    """What a call returns or raises, in a few words."""
    try:
        act()
    except Exception as error:  # the spike reports whatever it is
        text = str(error).splitlines()[0] if str(error) else ""
        return f"{type(error).__name__}: {text[:SHOWN]}"
    return "done"


def losses(server: Minio) -> None:
    """Conditional puts and reads that meet faults: outcome, and PUTs or GETs on the wire."""
    bucket = server.new_bucket()
    body = random.Random(3).randbytes(SMALL)
    with wired(server.port) as wire:
        ours = server.store(bucket, endpoint=wire.endpoint)
        ours.put_new("probe", body)
        ours.put_if("probe", body, ours.head("probe").version)
        once = theirs(server, bucket, wire.endpoint, retry_config=ONCE)
        often = theirs(server, bucket, wire.endpoint, retry_config=SOON)
        unsigned = theirs(server, bucket, wire.endpoint, retry_config=SOON, unsigned_payload=True)
        row("request", "fate", "ours", "obstore, no retries", "obstore, 3 retries")
        row(*["---"] * 5)
        for fate in (Fate.UNANSWERED, Fate.LOST, Fate.SLOWED, Fate.CONFLICTING, Fate.NOT_IMPLEMENTED):
            key = f"new-{fate.name}"
            puts: list[Act] = [partial(ours.put_new, f"{key}-0", body)]
            puts += [
                partial(obstore.put, one, f"{key}-{at}", body, mode="create") for at, one in enumerate((once, often), 1)
            ]
            row("put if absent", fate.value, *(_met(wire, "PUT", fate, put) for put in puts))
        for fate in (Fate.UNANSWERED, Fate.SLOWED):
            named = [f"if-{fate.name}-{number}" for number in range(3)]
            for key in named:
                ours.put(key, body)
            versions = [ours.head(key).version for key in named]
            puts = [partial(ours.put_if, named[0], body[::-1], versions[0])]
            puts += [
                partial(obstore.put, one, named[at], body[::-1], mode={"e_tag": versions[at]})
                for at, one in enumerate((once, often), 1)
            ]
            row("put if unchanged", fate.value, *(_met(wire, "PUT", fate, put) for put in puts))
        ours.put("read", body)
        for fate in (Fate.SLOWED, Fate.CUT, Fate.DAMAGED):
            gets: list[Act] = [partial(_read, partial(ours.get, "read"), body)]
            gets += [partial(_read, partial(_whole, one, "read"), body) for one in (once, often)]
            row("get", fate.value, *(_met(wire, "GET", fate, get) for get in gets))
        spoilt = [_met(wire, "PUT", Fate.SPOILT, partial(obstore.put, one, "spoilt", body)) for one in (once, unsigned)]
        row("put", Fate.SPOILT.value, _met(wire, "PUT", Fate.SPOILT, partial(ours.put, "spoilt", body)), *spoilt)
        print("(The last cell: a body that is not signed.)")


def _whole(store: Any, key: str) -> bytes:
    return bytes(obstore.get(store, key).bytes())


def _met(wire: Wire, operation: str, fate: Fate, act: Act) -> str:
    before = len(wire.requests)
    wire.befall(operation, fate)
    said = outcome(act)
    made = sum(one.operation == operation for one in wire.requests[before:])
    return f"{said} ({made} {operation})"


def _read(get: Callable[[], bytes], wanted: bytes) -> None:
    if get() != wanted:
        raise AssertionError("other bytes than were put, without an error")


def keys(server: Minio) -> None:
    """A key of its own for each of KEYS tenants: clients, their memory, and sockets open after a put of each."""
    bucket = server.new_bucket()
    with wired(server.port) as wire:
        one = theirs(server, bucket, wire.endpoint, server_side_encryption="aws:kms", sse_kms_key_id="tenant-key")
        outcome(lambda: obstore.put(one, "sealed", b"x", use_multipart=False))
        headers = {name.lower(): value for name, value in wire.requests[-1].headers.items()}
        sealed = {name: value for name, value in headers.items() if "server-side-encryption" in name}
        print(f"Headers of a put by a client with a key: {sealed}")
        outcome(
            lambda: obstore.put(one, "sealed", b"x", attributes={"x-amz-server-side-encryption-aws-kms-key-id": "k"})
        )
        named = [name for name in wire.requests[-1].headers if "kms-key-id" in name.lower()]
        print(f"A key given as an attribute of one put is sent as: {named}")
    before, began = _sockets(), time.process_time_ns()
    memory = _resident_kib()
    made = [theirs(server, bucket, config={"sse_kms_key_id": f"k{number}"}) for number in range(KEYS)]
    milliseconds = (time.process_time_ns() - began) / 1e6
    for store in made:
        outcome(partial(obstore.head, store, "head"))
    grown = _resident_kib() - memory
    print(
        f"{KEYS} clients, one for each key: {milliseconds:.0f} ms of processor time, {grown} KiB, "
        f"{_sockets() - before} connections after one request of each"
    )


def _resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10


def _sockets() -> int:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.readlink(link).startswith("socket:") for link in links)


class Signed(Minio):
    """A server over TLS whose certificate an authority of this process has signed."""

    def _certify(self) -> None:
        authority = Authority(self.directory, "authority")
        signed = authority.sign("minio")
        self.certificate.parent.mkdir(parents=True)
        # The authority's too: the helpers of Minio trust what this file holds.
        self.certificate.write_bytes(signed.cert_file.read_bytes() + authority.file.read_bytes())
        signed.key_file.rename(self.certificate.with_name("private.key"))


def trust(server: Minio, trusted: Path) -> None:
    """A server whose certificate no public authority has signed; `trusted`: what a client is to trust."""
    os.environ["AWS_CA_BUNDLE"] = str(trusted)
    bucket = server.new_bucket()
    print(f"AWS_CA_BUNDLE, ours: {outcome(lambda: server.store(bucket).put('k', b'x'))}")
    plain = theirs(server, bucket, retry_config=ONCE)
    print(f"AWS_CA_BUNDLE, obstore: {_shortly(outcome(lambda: obstore.put(plain, 'k', b'x')))}")
    told = theirs(server, bucket, retry_config=ONCE, client_options={"root_certificate": trusted.read_bytes()})
    print(f"root_certificate, obstore: {_shortly(outcome(lambda: obstore.put(told, 'k', b'x')))}")


def _shortly(said: str) -> str:
    return said if said == "done" else f"{said.partition(':')[0]}, {said.rpartition(' - ')[2]}"


@contextmanager
def running(server: Minio) -> Iterator[Minio]:
    """The server, for the body."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    """Print all tables."""
    parts = sys.argv[1:] or ["times", "requests", "losses", "keys", "trust"]
    print(f"obstore {obstore.__version__}")
    with tempfile.TemporaryDirectory() as directory:
        with running(Minio(Path(directory, "plain"))) as server:
            for name, act in (("times", times), ("requests", requests), ("losses", losses), ("keys", keys)):
                if name in parts:
                    print(f"\n{name}\n")
                    act(server)
        if "trust" in parts:
            print("\ntrust: a certificate that vouches for itself\n")
            with running(Minio(Path(directory, "guarded"), guarded=True)) as guarded:
                trust(guarded, guarded.certificate)
            print("\ntrust: a certificate of an authority of our own\n")
            with running(Signed(Path(directory, "signed"), guarded=True)) as signed:
                trust(signed, Path(directory, "signed", "authority.pem"))


if __name__ == "__main__":
    main()

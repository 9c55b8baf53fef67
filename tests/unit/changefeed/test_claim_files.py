"""Files of large messages: where they may be, each once, and never another one's."""

from __future__ import annotations

import pytest

from tistream.errors import CommitStateUnknown, TargetNotAllowed, Unavailable
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.protocols.messages import ClaimFile
from tistream_changefeed.sinks.allowed import storage_url
from tistream_changefeed.sinks.claim_check import ClaimFiles

ALLOWED = ("s3://bucket/claims?endpoint=http://minio:9000", "file:///var/claims")
PLACE = "s3://bucket/claims"


class Flaky(MemoryObjectStore):
    """A store whose first put is done, and its answer lost."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    def put_new(self, key: str, body: bytes) -> None:
        error, self.error = self.error, None
        if not isinstance(error, Unavailable):
            super().put_new(key, body)
        if error is not None:
            raise error


def test_files_are_put_at_or_below_a_place_of_the_list_with_its_options() -> None:
    assert storage_url("s3://bucket/claims", ALLOWED) == "s3://bucket/claims?endpoint=http://minio:9000"
    assert storage_url("s3://bucket/claims/a/", ALLOWED) == "s3://bucket/claims/a?endpoint=http://minio:9000"
    assert storage_url("file:///var/claims/acme", ALLOWED) == "file:///var/claims/acme"


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/claims2",
        "s3://bucket",
        "s3://bucket/claims?endpoint=http://169.254.169.254",
        "s3://key:hunter2@bucket/claims",
        "s3://bucket/claims/../other",
        "file:///var/claims/%2e%2e/other",
        "file:///var/claims//x",
        "file:///etc",
        "memory:",
        "",
    ],
)
def test_other_places_are_refused(url: str) -> None:
    with pytest.raises(TargetNotAllowed, match="TISTREAM_CHANGEFEED__CLAIM_CHECK_URLS") as refused:
        storage_url(url, ALLOWED)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(TargetNotAllowed, match="allows: none"):
        storage_url(PLACE, ())


def test_a_file_that_is_there_already_is_not_put_again() -> None:
    store = MemoryObjectStore()
    files = ClaimFiles(store, PLACE)
    files.put([ClaimFile("a.json", b"1"), ClaimFile("b.json", b"2")])
    version = store.head("a.json").version
    files.put([ClaimFile("a.json", b"1")])
    assert (store.get("a.json"), store.head("a.json").version) == (b"1", version)


def test_a_file_with_other_bytes_stops_the_feed_and_stays() -> None:
    store = MemoryObjectStore()
    files = ClaimFiles(store, PLACE)
    files.put([ClaimFile("a.json", b"1")])
    with pytest.raises(FeedFailed, match="the file of this event has other bytes") as found:
        files.put([ClaimFile("a.json", b"2")])
    assert (found.value.failure.kind, found.value.failure.object) == ("failed", f"{PLACE}/a.json")
    assert store.get("a.json") == b"1"


def test_a_lost_answer_and_a_store_that_is_away_are_tried_again() -> None:
    lost = Flaky(CommitStateUnknown("a.json"))
    ClaimFiles(lost, PLACE).put([ClaimFile("a.json", b"1")])
    assert lost.get("a.json") == b"1"
    away = Flaky(Unavailable("no answer"))
    with pytest.raises(FeedFailed, match="a file cannot be put: no answer") as found:
        ClaimFiles(away, PLACE).put([ClaimFile("a.json", b"1")])
    assert found.value.failure.kind == "retry"
    ClaimFiles(away, PLACE).put([ClaimFile("a.json", b"1")])
    assert away.get("a.json") == b"1"

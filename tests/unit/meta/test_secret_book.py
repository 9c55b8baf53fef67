"""Secrets in the meta database: sealed texts, listed without them, kept while a changefeed refers to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.audit_world import World
from tistream.errors import AlreadyDiffers, LimitReached, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.changefeeds import NewChangefeed
from tistream.wire.bulk.feed_changes import ChangedFeed
from tistream.wire.bulk.secrets import SECRETS_MAX
from tistream_meta.feeds.feed_book import FeedBook
from tistream_meta.feeds.secret_book import SecretBook

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.tenant("acme")
    world.tenant("other")
    return world


@pytest.fixture
def book(world: World) -> SecretBook:
    return world.repository.part(SecretBook)


def test_a_secret_is_replaced_and_seen_by_its_tenant_alone(book: SecretBook) -> None:
    book.put(ACME, "kafka", "sealed-1")
    book.put(ACME, "kafka", "sealed-2")
    book.put(ACME, "mysql", "sealed-3")
    assert [one.name for one in book.of_tenant(ACME)] == ["kafka", "mysql"]
    assert "sealed" not in str(book.of_tenant(ACME))
    assert dict(book.sealed(ACME)) == {"kafka": "sealed-2", "mysql": "sealed-3"}
    assert (list(book.of_tenant(OTHER)), dict(book.sealed(OTHER))) == ([], {})


def test_a_secret_that_a_changefeed_refers_to_stays(world: World, book: SecretBook) -> None:
    book.put(ACME, "kafka", "sealed")
    uri = "kafka://b:9092/t?sasl-user=u&sasl-password=${secret:kafka}"
    feeds = world.repository.part(FeedBook)
    feeds.add(ACME, NewChangefeed(changefeed_id="all", sink_uri=uri, start_ts="1", start_given=True))
    assert book.of_tenant(ACME)[0].used_by == ["all"]
    with pytest.raises(AlreadyDiffers, match="secret kafka is used by changefeed all"):
        book.remove(ACME, "kafka")
    feeds.remove(ACME, "all")
    assert book.remove(ACME, "kafka").name == "kafka"
    with pytest.raises(UnknownName, match="no secret 'kafka'"):
        book.remove(ACME, "kafka")


def of_feed(uri: str, **secrets: str) -> NewChangefeed:
    sealed = {name.replace("_", "."): text for name, text in secrets.items()}
    return NewChangefeed(changefeed_id="all", sink_uri=uri, start_ts="1", start_given=True, secrets=sealed)


def test_what_was_taken_out_of_a_sink_uri_comes_and_goes_with_its_feed(world: World, book: SecretBook) -> None:
    feeds = world.repository.part(FeedBook)
    uri = "kafka://b:9092/t?sasl-user=u&sasl-password=${secret:all.pw}"
    feeds.add(ACME, of_feed(uri, all_pw="sealed-1"))
    feeds.add(ACME, of_feed(uri, all_pw="sealed-2"))  # the same call again: sealed texts differ each time
    assert dict(book.sealed(ACME)) == {"all.pw": "sealed-1"}
    feeds.pause(ACME, "all")
    changed = ChangedFeed(revision=0, sink_uri=uri, end_ts=None, config={}, secrets={"all.pw": "sealed-3"})
    feeds.update(ACME, "all", changed)
    assert dict(book.sealed(ACME)) == {"all.pw": "sealed-3"}
    book.put(ACME, "all-else", "sealed")
    feeds.remove(ACME, "all")
    assert dict(book.sealed(ACME)) == {"all-else": "sealed"}


def test_the_secret_of_another_feed_is_not_overwritten(world: World, book: SecretBook) -> None:
    feeds = world.repository.part(FeedBook)
    book.put(ACME, "all.pw", "sealed")
    uri = "kafka://b:9092/t?sasl-user=u&sasl-password=${secret:all.pw}"
    feeds.add(ACME, NewChangefeed(changefeed_id="first", sink_uri=uri, start_ts="1", start_given=True))
    with pytest.raises(AlreadyDiffers, match="changefeed first uses the secret"):
        feeds.add(ACME, of_feed(uri, all_pw="another"))
    assert dict(book.sealed(ACME)) == {"all.pw": "sealed"}
    assert [feed.feed_id for feed, _ in feeds.of_tenant(ACME)] == ["first"]


def test_a_tenant_has_a_limited_number_of_secrets(book: SecretBook) -> None:
    for number in range(SECRETS_MAX):
        book.put(ACME, f"s{number}", "sealed")
    book.put(ACME, "s0", "again")
    with pytest.raises(LimitReached, match=f"has {SECRETS_MAX} secrets"):
        book.put(ACME, "one-more", "sealed")


def test_the_audit_log_names_a_secret_and_has_nothing_of_it(world: World, book: SecretBook) -> None:
    before = world.entries()[-1]["seq"]
    book.put(ACME, "kafka", "sealed")
    book.remove(ACME, "kafka")
    put, removed = world.entries(after=before)
    assert (put["subject"], put["was"], put["became"]) == ("secret kafka", None, {"put": True})
    assert (removed["subject"], removed["was"], removed["became"]) == ("secret kafka", {"put": True}, None)


def test_secrets_are_of_tenants_that_exist(book: SecretBook) -> None:
    with pytest.raises(UnknownName):
        book.put(TenantKey("7", "nobody"), "kafka", "sealed")

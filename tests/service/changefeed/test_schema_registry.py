"""The client of schema registries, against a server with Confluent's interface."""

from __future__ import annotations

import pytest

from support.schema_registry import registry
from tistream.errors import SchemaRefused, Unavailable
from tistream_changefeed.registry.confluent import ConfluentRegistry

OLD = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
NEW = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
WIDER = '{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}'
SUBJECT = "shop.we`ird 名/t-value"


def test_a_schema_is_registered_once_and_has_one_id_in_all_subjects() -> None:
    with registry() as server:
        client = ConfluentRegistry(server.url)
        assert [client.id_of(SUBJECT, OLD) for _ in range(3)] == [1, 1, 1]
        assert client.id_of("other-value", OLD) == 1
        assert client.id_of(SUBJECT, WIDER) == 2
        assert server.posts == [SUBJECT, "other-value", SUBJECT]
        client.close()


def test_a_schema_that_conflicts_is_refused_with_both_schemas() -> None:
    with registry() as server:
        client = ConfluentRegistry(server.url)
        client.id_of(SUBJECT, OLD)
        with pytest.raises(SchemaRefused) as refused:
            client.id_of(SUBJECT, NEW)
        assert OLD in str(refused.value)
        assert NEW in str(refused.value)
        assert "the type of the field a changed" in str(refused.value)
        client.close()


def test_a_schema_that_is_none_is_refused_with_the_registrys_reason() -> None:
    with registry() as server:
        client = ConfluentRegistry(server.url)
        with pytest.raises(SchemaRefused, match="Invalid schema"):
            client.id_of(SUBJECT, '{"type":"nothing"}')
        client.close()


def test_a_registry_that_fails_or_is_away_may_be_tried_again() -> None:
    with registry() as server:
        server.failing = 1
        client = ConfluentRegistry(server.url)
        with pytest.raises(Unavailable, match="leader not known"):
            client.id_of(SUBJECT, OLD)
        assert client.id_of(SUBJECT, OLD) == 1
        client.close()
    away = ConfluentRegistry(server.url)
    with pytest.raises(Unavailable, match="schema registry http://127"):
        away.id_of(SUBJECT, OLD)
    away.close()


def test_credentials_are_sent_and_never_shown() -> None:
    with registry() as server:
        server.credentials = "feed:secret/w@rd"
        wrong = ConfluentRegistry(server.url.replace("//", "//feed:wrong-word@"))
        with pytest.raises(Unavailable) as refused:
            wrong.id_of(SUBJECT, OLD)
        assert "wrong-word" not in str(refused.value)
        right = ConfluentRegistry(server.url.replace("//", "//feed:secret%2Fw%40rd@"))
        assert right.id_of(SUBJECT, OLD) == 1
        wrong.close()
        right.close()

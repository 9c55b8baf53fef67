"""A changefeed's configuration may come as the text of its TOML file."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest
from tistream.wire.bulk.changefeeds import CreateChangefeed
from tistream_api.feeds.config_text import CreateBody
from tistream_api.request.bodies import MEMBERS_MAX

GIVEN = {"changefeed_id": "orders", "sink_uri": "kafka://broker:9092/orders", "start_ts": "5", "end_ts": "9"}
TEXT = 'force-replicate = true\n[filter]\nrules = ["shop.*"]\n'
DOCUMENT = {"force-replicate": True, "filter": {"rules": ["shop.*"]}}


def test_the_text_and_the_document_are_the_same_request() -> None:
    from_text = CreateBody(**GIVEN, config_toml=TEXT).wanted()  # type: ignore[arg-type]
    assert from_text == CreateBody(**GIVEN, config=DOCUMENT).wanted()  # type: ignore[arg-type]
    assert from_text == CreateChangefeed(**GIVEN, config=DOCUMENT)  # type: ignore[arg-type]
    assert "config_toml" not in from_text.model_dump_json()  # other services refuse members that they do not know


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = 1\nrules = ]", "is not TOML: .*at line 2, column 9"),
        ("a = 2026-11-29", "a value that no key of a changefeed accepts"),
        ("a = nan", "a value that no key of a changefeed accepts"),
        ("a = " + "[" * 20_000, "is not TOML"),
        ("\n".join(f"a{number} = 1" for number in range(MEMBERS_MAX + 1)), "more than 1000 keys"),
        ("a" + ".a" * 30_000 + " = 1", "a key with more than 400 dots"),
        ("[a" + ".a" * 30_000 + "]", "a key with more than 400 dots"),
        ("b = {a" + ".a" * 30_000 + " = 1}", "a key with more than 400 dots"),
        ("a" + (".a" * 300 + '."="') * 100 + " = 1", "a key with more than 400 dots"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        CreateBody(**GIVEN, config_toml=text).wanted()  # type: ignore[arg-type]
    assert refused.value.extra["parameter"] == "config_toml"


def test_rules_may_have_many_dots() -> None:
    rules = [f"shop.table_{number}" for number in range(500)]
    text = f"[filter]\nrules = {rules}\nignore-txn-start-ts = []\n"
    found = CreateBody(**GIVEN, config_toml=text).wanted().config  # type: ignore[arg-type]
    assert found["filter"]["rules"] == rules


def test_two_configurations_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="config and config_toml"):
        CreateBody(**GIVEN, config=DOCUMENT, config_toml=TEXT).wanted()  # type: ignore[arg-type]

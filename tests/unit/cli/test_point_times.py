"""Times of `tistream rows|history|diff`."""

from __future__ import annotations

import pytest

from tistream_client.cli.errors import CliError
from tistream_client.cli.output import cell
from tistream_client.cli.points.reads import Named
from tistream_client.cli.points.show import sign
from tistream_client.cli.times import shown_time, ts_text

NOW_MS = 1_795_183_380_000  # 2026-11-20T14:03:00Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-20T14:03:00Z", NOW_MS),
        ("2026-11-20T14:03:00", NOW_MS),
        ("2026-11-20 16:03:00.250+02:00", NOW_MS + 250),
        ("13:00", NOW_MS - 63 * 60_000),
        ("23:59:30.5Z", NOW_MS + 9 * 3_600_000 + 56 * 60_000 + 30_500),
        ("01:00+10:00", NOW_MS + 57 * 60_000),
        ("23:30-14:30", NOW_MS - 3 * 60_000),
        ("2026-11-20", NOW_MS - (14 * 60 + 3) * 60_000),
        ("90s", NOW_MS - 90_000),
        ("15m", NOW_MS - 15 * 60_000),
        ("36h", NOW_MS - 36 * 3_600_000),
        ("7d", NOW_MS - 7 * 86_400_000),
    ],
)
def test_a_time_of_people_is_a_tso(text: str, ms: int) -> None:
    assert ts_text(text, NOW_MS) == str(ms << 18)


@pytest.mark.parametrize("text", ["now", "470596577375551488", "0"])
def test_what_the_api_reads_itself_is_passed_on(text: str) -> None:
    assert ts_text(text, NOW_MS) == text


@pytest.mark.parametrize("text", ["", "yesterday", "15x", "-5m", "2026-13-01", "25:00", "1:05", "10:60Z", "٣"])
def test_any_other_text_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(CliError, match="2026-11-21T10:00:00Z"):
        ts_text(text, NOW_MS)


def test_a_tso_is_shown_as_a_time() -> None:
    assert shown_time(str((NOW_MS + 7) << 18)) == "2026-11-20 14:03:00.007"
    assert shown_time(str((1 << 63) - 1)).startswith("3084-")


def test_a_table_has_two_names() -> None:
    assert Named.parse("7", "acme", "shop.a.b").path("rows") == (
        "/v1/clusters/7/tenants/acme/databases/shop/tables/a.b/rows"
    )
    for text in ("shop", ".orders", "shop."):
        with pytest.raises(CliError, match=r"DATABASE\.TABLE"):
            Named.parse("7", "acme", text)


def test_no_value_controls_the_terminal() -> None:
    assert cell("a\x1b[31mb\n") == "a\\u001b[31mb\\n"
    assert cell(None) == "null"
    assert cell(["1", 2]) == '["1", 2]'


def test_the_sign_of_an_event() -> None:
    assert [sign({"op": op, "old_row": old}) for op, old in (("put", None), ("put", {}), ("delete", {}))] == [
        "+", "~", "-"
    ]  # fmt: skip

"""Addresses of targets: what is read from them, and that no error or text shows the password."""

from __future__ import annotations

import pytest

from tistream.targets.mysql_url import MySqlUrl, parse_mysql_url


def test_an_address_with_everything() -> None:
    url = parse_mysql_url("mysql://us%40er:p%3Aw@db.example:4000/sh%2Fop?ssl_ca=/ca.pem")
    assert url == MySqlUrl("db.example", 4000, "us@er", "p:w", "sh/op", (("ssl_ca", "/ca.pem"),))


def test_a_short_address() -> None:
    assert parse_mysql_url("mysql://root@127.0.0.1") == MySqlUrl("127.0.0.1", 3306, "root", "", None)


@pytest.mark.parametrize(
    "text",
    [
        "postgres://u:secret@h/d",
        "mysql://:secret@h/d",
        "mysql://u:secret@/d",
        "mysql://u:secret@h:port/d",
        "secret",
        "mysql://u:secret@h/d?init_command=DROP",
    ],
)
def test_a_bad_address_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"mysql://user:password@host|unknown option") as refused:
        parse_mysql_url(text)
    assert "secret" not in str(refused.value)


def test_no_text_of_an_address_shows_the_password() -> None:
    url = parse_mysql_url("mysql://u:secret@h/d")
    assert "secret" not in f"{url} {url!r}"

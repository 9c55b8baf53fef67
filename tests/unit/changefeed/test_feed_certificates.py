"""Certificates and keys of feeds, which come as texts: one that cannot be read is named by its option."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.certificates import Authority
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.sinks.mysql.connection import connected
from tistream_changefeed.sinks.mysql.target import MySqlServer
from tistream_changefeed.tls import BadPem, identify, trusting

BROKEN = "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n"
NAMES = ("ssl-cert", "ssl-key")


@pytest.mark.parametrize("ca", [BROKEN, "hunter2", "", "\N{EURO SIGN}"])
@pytest.mark.parametrize("others", [False, True])
def test_an_authority_that_cannot_be_read_is_named(ca: str, others: bool) -> None:
    with pytest.raises(BadPem, match=r"^ca is not a certificate in PEM \(-----BEGIN CERTIFICATE-----") as found:
        trusting(ca, "ca", others=others)
    assert "hunter2" not in str(found.value)


def test_a_certificate_needs_its_own_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    one, other = (authority.sign(name) for name in ("one", "other"))
    cert, key = one.cert_file.read_text(), one.key_file.read_text()
    context = trusting(authority.file.read_text(), "ssl-ca", others=False)
    identify(context, cert, key, NAMES)
    for pair, reason in (
        ((BROKEN, key), "ssl-cert is not a certificate in PEM"),
        ((cert, BROKEN), "ssl-key is not a private key without a passphrase in PEM"),
        ((cert, other.key_file.read_text()), "ssl-key is not the key of ssl-cert"),
    ):
        with pytest.raises(BadPem, match=reason):
            identify(context, *pair, NAMES)


def test_a_database_is_not_connected_to_with_an_authority_that_cannot_be_read() -> None:
    server = MySqlServer("db", 3306, "root", None, 1, False, True, ca=BROKEN)
    with pytest.raises(FeedFailed, match="ssl-ca is not a certificate in PEM") as found:
        connected(server)
    assert found.value.failure.refused, "the secret may be put again"

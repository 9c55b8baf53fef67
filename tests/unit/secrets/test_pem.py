"""Certificates and keys that are put as secrets: one that was cut or joined on the way is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.certificates import Authority
from tistream.errors import InvalidRequest
from tistream.secrets.pem import check_pem


def test_whole_texts_and_other_secrets_are_taken(tmp_path: Path) -> None:
    one = Authority(tmp_path, "authority").sign("one")
    cert, key = one.cert_file.read_text(), one.key_file.read_text()
    old = key.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1)
    for value in (cert, key, f"{cert}{key}", f"# ours\n{cert}", cert.replace("\n", "\r\n"), old, "hunter2", "a\n\nb"):
        check_pem(value)


def test_a_text_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    cert = Authority(tmp_path, "authority").file.read_text()
    body = cert.splitlines()[1]
    for value in (
        cert[:-20],
        cert + cert[:-20],
        cert.replace("\n", " "),
        cert.replace("\n", ""),
        cert.replace("END CERT", "END PRIVATE"),
        cert.replace(body, f"{body}*"),
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
    ):
        with pytest.raises(InvalidRequest, match="is not whole") as refused:
            check_pem(value)
        assert body not in str(refused.value)

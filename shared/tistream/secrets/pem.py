"""Checks a secret that looks like a certificate or a key before it is encrypted, because nothing can look at it
afterwards. Pure."""

from __future__ import annotations

import base64
import binascii
import re

from tistream.errors import InvalidRequest

_BEGIN = "-----BEGIN "
_OURS = re.compile(r"\s*-----BEGIN (?:[A-Z0-9 ]+ )?(?:CERTIFICATE|PRIVATE KEY)-----")  # what a feed can use
_BLOCK = re.compile(r"-----BEGIN ([^-\n]+)-----[ \t]*\r?\n(.*?)-----END \1-----", re.DOTALL)
_HEADER = re.compile(r"[A-Za-z0-9-]+:.*|")  # of an old form of encrypted keys


def check_pem(value: str) -> None:
    """Check that a value that begins as a certificate or a private key in PEM is whole: each block has an end, and
    base64 before it. Other values are left alone. Raises InvalidRequest, which shows nothing of the value."""
    if _OURS.match(value) is None:
        return
    blocks = _BLOCK.findall(value)
    if len(blocks) != value.count(_BEGIN) or not all(_readable(body) for _, body in blocks):
        raise InvalidRequest(
            "value begins as PEM does, and is not whole: it has the lines -----BEGIN CERTIFICATE-----, base64, and "
            "-----END CERTIFICATE-----, each with its line break (`tistream secret put … < FILE`)",
            {"parameter": "value"},
        )


def _readable(body: str) -> bool:
    lines = [line.strip() for line in body.splitlines()]
    while lines and _HEADER.fullmatch(lines[0]):
        lines = lines[1:]
    try:
        return bool(base64.b64decode("".join(lines), validate=True))
    except binascii.Error:
        return False

"""Seals a secret, so that only a holder of the private key can read it. Pure.

The API server has the public key, and seals the secrets that users send. The meta database stores the sealed text.
Workers of changefeeds have the private key. So neither the meta database, its backups and its servers nor the API
server can decrypt a secret. Sealed text is libsodium's sealed box (X25519, XSalsa20-Poly1305) in base64. The encrypted
content includes the tenant and the secret's name, so a sealed text that was copied to another tenant or name cannot be
opened.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

from tistream.model.ids import TenantKey

KEY_BYTES = 32


class BadKey(ValueError):
    """A text is not a valid key. The message does not show the text."""


class NotOpened(Exception):
    """The sealed text cannot be opened: no given key fits, or it belongs to another secret. The message names the
    secret."""


def public_key(text: str) -> PublicKey:
    """Parse the key in the last line of a public key file: base64 of 32 bytes. Raises BadKey."""
    lines = text.split()
    if not lines:
        raise BadKey("the file is empty; a public key is base64 of 32 bytes")
    return PublicKey(_bytes(lines[-1]))


def private_keys(text: str) -> Sequence[PrivateKey]:
    """Parse the keys of a private key file, one a line: base64 of 32 bytes. Raises BadKey."""
    found = [PrivateKey(_bytes(line)) for line in text.split()]
    if not found:
        raise BadKey("the file is empty; a private key is base64 of 32 bytes")
    return found


def seal(key: PublicKey, tenant: TenantKey, name: str, value: str) -> str:
    """Encrypt the value of the tenant's secret `name`. Returns base64, which differs each time. Only `opened` with the
    same tenant and name decrypts it."""
    content = json.dumps([tenant.cluster_id, tenant.tenant_id, name, value]).encode()
    return base64.b64encode(SealedBox(key).encrypt(content)).decode()


def opened(keys: Sequence[PrivateKey], tenant: TenantKey, name: str, sealed: str) -> str:
    """Decrypt a text that `seal` has returned for this tenant and name, with whichever of the keys fits. Returns the
    secret's value. Raises NotOpened."""
    for key in keys:
        try:
            content = json.loads(SealedBox(key).decrypt(base64.b64decode(sealed, validate=True)))
        except (CryptoError, ValueError):
            continue
        if content[:3] != [tenant.cluster_id, tenant.tenant_id, name]:
            raise NotOpened(f"secret {name} of tenant {tenant} was sealed for another tenant or name: put it again")
        return str(content[3])
    raise NotOpened(f"no key of this worker opens secret {name} of tenant {tenant}: put it again, or add the key")


def _bytes(line: str) -> bytes:
    try:
        found = base64.b64decode(line, validate=True)
    except binascii.Error as error:
        raise BadKey("a line is not base64") from error
    if len(found) != KEY_BYTES:
        raise BadKey(f"a line is base64 of {len(found)} bytes; a key has {KEY_BYTES}")
    return found

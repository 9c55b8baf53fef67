"""The private keys of this worker, with which it decrypts the secrets of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.secrets.references import names_in
from tistream.secrets.sealing import BadKey, NotOpened, opened, private_keys, seal


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The private keys in `file`, with which this worker decrypts secrets; None if it has no keys. The file is read at
    each use, so that a key can be added without a restart."""

    file: Path | None

    def sealed(self, tenant: TenantKey, values: Mapping[str, str]) -> dict[str, str]:
        """Encrypt the secrets that a feed had in clear text. Returns the encrypted texts by name. Raises
        InvalidRequest if there are secrets and this worker has no key, and Unavailable if its file cannot be read
        now."""
        if not values:
            return {}
        if self.file is None:
            raise InvalidRequest(
                f"{sorted(values)[0].rpartition('.')[2]} would be stored in clear, because this worker has no key to "
                "seal it: set TISTREAM_CHANGEFEED__SECRETS_KEY_FILE"
            )
        try:
            key = private_keys(self.file.read_text())[-1].public_key
        except (OSError, UnicodeError, BadKey) as error:
            raise Unavailable(f"SECRETS_KEY_FILE {self.file}: {error}") from error
        return {name: seal(key, tenant, name, value) for name, value in values.items()}

    def values(
        self, tenant: TenantKey, sink_uri: str, config: Mapping[str, Any], sealed: Mapping[str, str]
    ) -> dict[str, str]:
        """Decrypt the secrets to which a feed refers, and return their values by name. `sealed`: the tenant's encrypted
        secrets by name. Raises InvalidRequest, which names the secret or the setting, if one does not exist or cannot
        be decrypted, and Unavailable if the file of keys cannot be read now."""
        names = names_in(sink_uri, config)
        if not names:
            return {}
        if self.file is None:
            raise InvalidRequest("this worker opens no secrets: set TISTREAM_CHANGEFEED__SECRETS_KEY_FILE")
        if missing := sorted(names - sealed.keys()):
            raise InvalidRequest(f"tenant {tenant} has no secret {missing[0]}: put it, then resume the changefeed")
        try:
            keys = private_keys(self.file.read_text())
            return {name: opened(keys, tenant, name, sealed[name]) for name in sorted(names)}
        except (OSError, UnicodeError, BadKey) as error:
            raise Unavailable(f"SECRETS_KEY_FILE {self.file}: {error}") from error
        except NotOpened as error:
            raise InvalidRequest(str(error)) from error

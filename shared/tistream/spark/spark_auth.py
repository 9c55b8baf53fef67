"""Authentication and encryption between Spark's driver and its executors: a shared secret, and Spark's own settings
(Spark's documentation, "Spark Security")."""

from __future__ import annotations

import re
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
SECRET = "spark.authenticate.secret"
# Characters that have no special meaning in a settings file or a shell.
_SECRET_FORM = re.compile(r"[A-Za-z0-9+/=._-]+")
_AUTHENTICATE, _ENCRYPT = "spark.authenticate", "spark.network.crypto.enabled"
_HOST, _BIND = "spark.driver.host", "spark.driver.bindAddress"
AUTH_SETTINGS = {
    _AUTHENTICATE: "true",
    _ENCRYPT: "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",  # Spark's default does not detect changed bytes
}


def auth_settings(master: str) -> dict[str, str]:
    """The Spark settings that make driver and executors authenticate each other and encrypt. With a local or Kubernetes
    master, Spark draws a secret for each driver. A standalone cluster has one secret for all drivers, which the
    operator must set (`refusal` checks that)."""
    if master.startswith("spark:"):
        return {}
    return AUTH_SETTINGS | ({_HOST: LOOPBACK, _BIND: LOOPBACK} if master.startswith("local") else {})


def refusal(master: str, conf: Mapping[str, str]) -> str | None:
    """The reason why a session with these settings must not start: it would accept connections from other machines
    without authentication. None if it may start. `conf`: settings besides those that `auth_settings` returns."""
    wanted = {**auth_settings(master), **conf}
    if wanted.get(_HOST) == LOOPBACK and wanted.get(_BIND, LOOPBACK) == LOOPBACK:
        return None
    missing = [f'"{name}": "true"' for name in (_AUTHENTICATE, _ENCRYPT) if wanted.get(name) != "true"]
    if master.startswith("spark:") and not _SECRET_FORM.fullmatch(conf.get(SECRET, "")):
        missing.append(f'"{SECRET}" of letters, digits and any of + / = . _ -, the same at the master and the workers')
    if not missing:
        return None
    return f"the driver of {master} is reachable from other machines: SPARK__CONF needs {', '.join(missing)}"

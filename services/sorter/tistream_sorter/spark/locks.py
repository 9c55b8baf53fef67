"""What driver and executors want of each other before they listen: one secret, and encryption. Spark's own settings
(Spark's documentation, "Spark Security")."""

from __future__ import annotations

import re
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
SECRET = "spark.authenticate.secret"
_SECRET_FORM = re.compile(r"[A-Za-z0-9+/=._-]+")  # that no file of settings and no shell reads otherwise
_AUTHENTICATE, _ENCRYPT = "spark.authenticate", "spark.network.crypto.enabled"
_HOST, _BIND = "spark.driver.host", "spark.driver.bindAddress"
LOCKS = {
    _AUTHENTICATE: "true",
    _ENCRYPT: "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",  # Spark's own choice does not notice changed bytes
}


def locked(master: str) -> dict[str, str]:
    """The settings of a session. Of its own cluster (local, Kubernetes) Spark draws a secret for each driver; of a
    standalone one the secret is the cluster's, so that its operator has to give it: `refusal`."""
    if master.startswith("spark:"):
        return {}
    return LOCKS | ({_HOST: LOOPBACK, _BIND: LOOPBACK} if master.startswith("local") else {})


def refusal(master: str, conf: Mapping[str, str]) -> str | None:
    """Why a session of these settings must not be: it would listen to other machines, and let in who comes. `conf` is
    what goes beyond the settings that a session has by itself."""
    wanted = {**locked(master), **conf}
    if wanted.get(_HOST) == LOOPBACK and wanted.get(_BIND, LOOPBACK) == LOOPBACK:
        return None
    missing = [f'"{name}": "true"' for name in (_AUTHENTICATE, _ENCRYPT) if wanted.get(name) != "true"]
    if master.startswith("spark:") and not _SECRET_FORM.fullmatch(conf.get(SECRET, "")):
        missing.append(f'"{SECRET}" of letters, digits and any of + / = . _ -, the same at the master and the workers')
    if not missing:
        return None
    return f"the driver of {master} is reachable from other machines: SPARK__CONF needs {', '.join(missing)}"

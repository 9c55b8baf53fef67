"""HEALTHCHECK, and Kubernetes' probes: what the service in this container answers to `/readyz`, or to the path that is
given. The standard library alone, since it runs every few seconds."""

import http.client
import os
import ssl
import sys


def setting(name: str) -> str | None:
    """Of this container's service, whichever it is."""
    return next((value for key, value in os.environ.items() if key.endswith(f"__{name}") and "TISTREAM_" in key), None)


port, certificate = int(setting("PORT") or 8000), setting("TLS__CERT_FILE")
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
if certificate:
    context = ssl.create_default_context()
    context.check_hostname = False  # it asks itself, and shows what a service shows its peers
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate, setting("TLS__KEY_FILE"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=4, context=context)
try:
    connection.request("GET", sys.argv[1] if len(sys.argv) > 1 else "/readyz")
    answer = connection.getresponse()
    sys.stdout.write(answer.read().decode())
    sys.exit(answer.status != http.client.OK)
except OSError as error:
    sys.exit(str(error))

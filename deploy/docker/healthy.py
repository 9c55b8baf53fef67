"""HEALTHCHECK: whether the service in this container says that it is ready. The standard library alone, since it runs
every few seconds."""

import http.client
import sys

connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=4)
try:
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    sys.stdout.write(answer.read().decode())
    sys.exit(answer.status != http.client.OK)
except OSError as error:
    sys.exit(str(error))

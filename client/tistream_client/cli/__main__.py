"""`python -m tistream_client.cli`: runs the client's commands."""

from tistream_client.cli.app import app
from tistream_client.cli.main import run

run(lambda: app)

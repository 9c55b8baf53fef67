"""Options that many commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from tistream_client.cli.base_url import checked
from tistream_client.cli.output import either

CLUSTER, TENANT, URL = "TISTREAM_CLUSTER", "TISTREAM_TENANT", "TISTREAM_URL"

Url = Annotated[str, typer.Option(help="Base URL of the API.", envvar=URL, callback=checked)]
Cluster = Annotated[str, typer.Option(help="Upstream cluster id.", envvar=CLUSTER)]
Tenant = Annotated[str, typer.Option(help="Upstream tenant id.", envvar=TENANT)]
Json = Annotated[bool, typer.Option("--json", help="The same as -o json.", callback=either)]

"""The catalogs of pyiceberg, of whose answers only a few properties are used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, Properties
from sqlalchemy.engine import URL

from tistream.errors import TargetNotAllowed
from tistream_changefeed.sinks.iceberg.catalogs.lake_io import LakeIO

_URI, _TOKEN = "uri", "token"
_ANSWER_S = "tistream.answer-s"
_TIMEOUTS = {
    "postgresql": ("connect_timeout",),
    "mysql": ("connect_timeout", "read_timeout"),
    "mariadb": ("connect_timeout", "read_timeout"),
}
"""The options of an address by which a driver gives up a server, in seconds."""
_ANSWERED = ("prefix", "namespace-separator", "view-endpoints-supported")
"""What a REST catalog may configure: how its own paths are written, and whether it has views."""
_KEYS, _SESSION = ("s3.access-key-id", "s3.secret-access-key"), "s3.session-token"
"""The credentials that a REST catalog may lend for a table. They are used at the operator's endpoint."""
_REFUSED = re.compile(
    r"(?:.*\.)?py-.*|.*\bimpl|write\.(?:data|metadata|object-storage|folder-storage)\.(?:path|location)"
    r"|(?:s3|client|gcs|adls|hdfs|oss|hf|rest|auth|header)\..*|uri|token|credential|warehouse"
)
"""Properties of a table that name code, addresses, credentials or other places."""


def waiting(address: str | URL, answer_s: float) -> dict[str, Any]:
    """The properties by which a catalog at this address waits `answer_s` for each answer. pyiceberg connects to a
    database twice, so that each time has half of it."""
    found: dict[str, Any] = {"s3.connect-timeout": str(answer_s), "s3.request-timeout": str(answer_s)}
    if isinstance(address, str):
        return found | {_ANSWER_S: answer_s}
    names = _TIMEOUTS.get(address.get_backend_name(), ())
    limits = {name: str(max(1, int(answer_s / 2))) for name in names if name not in address.query}
    return found | {_URI: address.update_query_dict(limits)}


def open_catalog(kind: str, name: str, properties: Mapping[str, Any]) -> Catalog:
    """Open a catalog. `kind`: "rest" or "sql". `properties`: those of pyiceberg, from the settings of the feed and of
    the operator; `warehouse` is the place of all files. pyiceberg's environment and file of settings are not used."""
    opened: type[CheckedRest | CheckedSql] = CheckedRest if kind == "rest" else CheckedSql
    return opened(name, **properties)


class CheckedSql(SqlCatalog):
    """A catalog in an SQL database. Raises TargetNotAllowed for a table that is not allowed (`limited`)."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **{**properties, PY_IO_IMPL: f"{LakeIO.__module__}.{LakeIO.__qualname__}"})

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> LakeIO:  # noqa: ARG002
        return LakeIO(self.properties)

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        table = super()._convert_orm_to_iceberg(orm_table)
        table.io = limited(LakeIO(self.properties), table.metadata, table.metadata_location)
        return table


class CheckedRest(RestCatalog):
    """A REST catalog at one address. Raises TargetNotAllowed if it names another one, and for a table that is not
    allowed (`limited`)."""

    def __init__(self, name: str, **properties: Any) -> None:
        self._given = properties
        super().__init__(name, **properties)

    def _config_headers(self, session: Any) -> None:
        super()._config_headers(session)
        session.max_redirects = 0
        session.hooks["response"].append(_refuse_redirect)
        if _ANSWER_S in self._given:  # or a request waits for ever
            session.request = partial(session.request, timeout=self._given[_ANSWER_S])

    def _fetch_config(self) -> None:
        super()._fetch_config()
        answered, uri = self.properties, self._given[_URI]
        if str(answered[_URI]).rstrip("/") != uri.rstrip("/"):
            raise _moved(str(answered[_URI]))
        self.uri = uri
        self.properties = {name: answered[name] for name in _ANSWERED if name in answered} | self._given

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> LakeIO:  # noqa: ARG002
        return LakeIO(self._given)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: Any) -> Table:
        place = table_response.metadata_location
        lent = self._resolve_storage_credentials(table_response.storage_credentials, place)
        answered = {**table_response.config, **lent}
        keys = (*_KEYS, _SESSION) if all(one in answered for one in _KEYS) else ()
        io = LakeIO(self._given | {one: answered[one] for one in keys if one in answered})
        return Table(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=place,
            io=limited(io, table_response.metadata, place),
            catalog=self,
            config={name: text for name, text in table_response.config.items() if name == _TOKEN},
        )

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """Implement Catalog.commit_table."""
        answer: CommitTableResponse = super().commit_table(table, requirements, updates)
        limited(LakeIO(self._given), answer.metadata, answer.metadata_location)
        return answer


def limited(io: LakeIO, metadata: TableMetadata, place: str | None) -> LakeIO:
    """Limit `io` to the location of a table, with the metadata file `place`. Raises TargetNotAllowed if a property of
    the table would choose code or places, if its location is outside, or if it names metadata outside of that."""
    if wrong := sorted(name for name in metadata.properties if _REFUSED.fullmatch(name)):
        raise TargetNotAllowed(
            f"the table has properties that would choose code, addresses or other places: {', '.join(wrong)[:200]}. "
            "Remove them (ALTER TABLE … UNSET TBLPROPERTIES), then resume the changefeed: its sink URI says where its "
            "files are"
        )
    found = io.below(metadata.location)
    logged = (one.metadata_file for one in metadata.metadata_log)
    for one in (place, *logged, *(snapshot.manifest_list for snapshot in metadata.snapshots)):
        if one is not None:
            found.check(one)
    return found


def _moved(address: str) -> TargetNotAllowed:
    return TargetNotAllowed(
        f"the catalog names another address, {address[:200]!r}, which is not followed: write it as catalog-uri"
    )


def _refuse_redirect(response: Any, **_: Any) -> None:
    if response.is_redirect:
        raise _moved(response.headers["location"])

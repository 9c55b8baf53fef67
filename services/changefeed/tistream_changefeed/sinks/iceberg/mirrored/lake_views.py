"""Stores and drops views in the catalog of a feed. A catalog may have no views, so the feed does not depend on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NoSuchViewError,
    RESTError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.view import View
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.mirrored.now_view import SUMMARY, VIEW_OF, is_of_feed
from tistream_changefeed.sinks.iceberg.target import Identifier, now_of

_NO_VIEW = (
    *(RuntimeError, BadRequestError, ForbiddenError, ValueError),
    *(NoSuchViewError, ViewAlreadyExistsError, TableAlreadyExistsError),
)
"""What pyiceberg raises if a catalog has no views, or refuses one; besides RESTError itself, for such as status 405."""


class LakeViews:
    """The views of a catalog, as one worker stores them. Every call may raise FeedFailed."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._checked: dict[Identifier, Mapping[str, str]] = {}  # the queries of views that are as they must be

    def put(self, identifier: Identifier, schema: Schema, queries: Mapping[str, str], table: str) -> None:
        """Store a view, in place of one of a feed with other queries. `queries`: its SQL text for each dialect.
        `table`: the table whose rows it shows. Nothing happens if another program has such a view. If the catalog has
        no views, or refuses this one, the next call tries again."""
        if self._checked.get(identifier) == queries:
            return
        shown = [ViewRepresentation(SQLViewRepresentation(type="sql", sql=q, dialect=d)) for d, q in queries.items()]
        version = ViewVersion.model_validate(
            {"schema-id": 0, "representations": shown, "default-namespace": identifier[:-1], "summary": SUMMARY}
        )

        def act(there: View | None) -> None:
            if there is not None and (
                not _is_of_feed(identifier, there) or there.current_version().representations == shown
            ):
                return
            if there is not None:
                self._lake.catalog.drop_view(identifier)
            self._lake.catalog.create_view(identifier, schema, version, None, {VIEW_OF: table})

        if self._on(identifier, act):
            self._checked[identifier] = queries

    def drop(self, identifier: Identifier) -> None:
        """Drop a view, if the catalog has it and a feed has stored it."""
        self._checked.pop(identifier, None)

        def act(there: View | None) -> None:
            if there is not None and _is_of_feed(identifier, there):
                self._lake.catalog.drop_view(identifier)

        self._on(identifier, act)

    def drop_if_now(self, identifier: Identifier) -> None:
        """Drop the view of a feed that has this name, which a table gets."""
        if identifier[-1].endswith(now_of(("",))[-1]):
            self.drop(identifier)

    def _on(self, identifier: Identifier, act: Callable[[View | None], None]) -> bool:
        """Act on a view, which may not exist. Returns False if the catalog has no views or refuses this."""
        with self._lake.asking(self._lake.named(identifier)):
            try:
                act(self._there(identifier))
            except _NO_VIEW:
                return False
            except RESTError as error:
                if type(error) is not RESTError:  # it may pass by itself, such as status 503
                    raise
                return False
        return True

    def _there(self, identifier: Identifier) -> View | None:
        try:
            return self._lake.catalog.load_view(identifier)
        except NoSuchViewError:
            return None


def _is_of_feed(identifier: Identifier, view: View) -> bool:
    version = view.current_version()
    queries = [one.root.sql for one in version.representations]
    return is_of_feed(identifier, view.properties, version.summary, queries)

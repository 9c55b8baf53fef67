"""Topic expressions: texts such as `cdc_{schema}_{table}` that name the topic of a table's messages. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.schema.visible import Name

_LITERAL = re.compile(r"[A-Za-z0-9._-]+")
_EXPRESSION = re.compile(r"[A-Za-z0-9._-]*(\{schema\})?([A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*", re.IGNORECASE)
_PART = re.compile(r"\{(schema|table)\}", re.IGNORECASE)
_UNSAFE = re.compile(r"[^a-zA-Z0-9._-]")
_BYTES_MAX = 249


@dataclass(frozen=True, slots=True)
class TopicExpression:
    """The name of a topic, in which `{schema}` and then `{table}` may stand for the names of the database and the
    table."""

    text: str

    @classmethod
    def parse(cls, text: str, *, whole: bool = False) -> TopicExpression:
        """Parse an expression. `whole`: it must contain both the schema and the table, as Avro needs because a topic
        has one schema. Raises InvalidRequest if it is not valid."""
        if not text or not _EXPRESSION.fullmatch(text):
            raise InvalidRequest(
                f"topic {text!r}: it is made of A-Z, a-z, 0-9, '.', '_' and '-', with {{schema}} and then {{table}} at"
                " most once each"
            )
        if whole and len(_PART.findall(text)) < 2:
            raise InvalidRequest(f"topic {text!r}: avro needs a topic for each table: write {{schema}} and {{table}}")
        if _LITERAL.fullmatch(text) and (text in {".", ".."} or len(text) > _BYTES_MAX):
            raise InvalidRequest(f"topic {text[:40]!r}: Kafka accepts 1 to {_BYTES_MAX} characters, not '.' or '..'")
        return cls(text)

    def of(self, database: str, table: str) -> str:
        """The topic of a table. Each character that Kafka does not accept in a topic becomes `_`, and long names are
        cut, so that two tables may have the same topic."""
        parts = {"schema": _UNSAFE.sub("_", database), "table": _UNSAFE.sub("_", table)}
        name = _PART.sub(lambda found: parts[found[1].lower()], self.text)[:_BYTES_MAX]
        return {".": "_", "..": "__"}.get(name, name)


def collisions(topics: Iterable[tuple[Name, TopicExpression]]) -> dict[str, list[Name]]:
    """The topics that several tables share although their expressions contain the names of both the database and
    the table. Returns each such topic with its tables."""
    found: dict[str, list[Name]] = defaultdict(list)
    for name, expression in topics:
        if len(_PART.findall(expression.text)) == 2:
            found[expression.of(*name)].append(name)
    return {topic: sorted(names) for topic, names in found.items() if len(names) > 1}

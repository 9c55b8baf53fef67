"""A topic of the open protocol as a changefeed writes it: transactions of a shop, with DDLs, resolved ts and aborts."""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.waiting import PATIENCE_S

WORD = 8
VARCHAR, BIGINT = 15, 8
HANDLE, UNIQUE_HANDLE = 11, 96  # flags of the columns, as TiCDC writes them
Row = tuple[int, str]


def framed(key: dict[str, Any], value: dict[str, Any] | None) -> tuple[bytes, bytes]:
    """Key and value of a message with one event."""
    texts = (json.dumps(key).encode(), b"" if value is None else json.dumps(value).encode())
    one, other = (len(text).to_bytes(WORD) + text for text in texts)
    return (1).to_bytes(WORD) + one, other


def columns(row: Row, keyed: bool = True) -> dict[str, Any]:
    """The columns of a row of either table."""
    number = {"t": BIGINT, "f": HANDLE, "v": row[0]}
    return {"id": {**number, "h": True} if keyed else number, "note": {"t": VARCHAR, "f": UNIQUE_HANDLE, "v": row[1]}}


@dataclass
class ShopTopic:
    """Writes histories by a seed, in Kafka transactions. `orders` and `log` are what the tables hold at the end;
    `events` counts the rows written."""

    address: str
    topic: str
    seed: int
    partitions: int = 3
    orders: dict[int, str] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    events: int = 0
    ts: int = 400_000_000_000_000_000
    first_ts: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        admin = AdminClient({"bootstrap.servers": self.address})
        for made in admin.create_topics([NewTopic(self.topic, self.partitions, 1)]).values():
            made.result(PATIENCE_S)
        self._producer = Producer({"bootstrap.servers": self.address, "transactional.id": self.topic})
        self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        """The database and its tables: one with a key, one without."""
        self._producer.begin_transaction()
        self.first_ts = self.ts
        self._ddl("", "CREATE DATABASE `shop`", 1)
        self._ddl("orders", "CREATE TABLE orders (id BIGINT PRIMARY KEY, note VARCHAR(40))", 3)
        self._ddl("log", "CREATE TABLE log (id BIGINT, note VARCHAR(40))", 3)
        self._resolve()
        self._producer.commit_transaction(PATIENCE_S)

    def transactions(self, count: int) -> None:
        """So many Kafka transactions of a few upstream ones each; before some of them, one is aborted."""
        for number in range(count):
            if self._random.random() < 0.2:
                self._aborted()
            self._producer.begin_transaction()
            for _ in range(self._random.randint(1, 3)):
                self._transaction()
            if number == count // 2:
                self._ddl("orders", f"ALTER TABLE orders ADD COLUMN c{self.ts % 1000} INT", 5)
            self._resolve()
            self._producer.commit_transaction(PATIENCE_S)

    def _transaction(self) -> None:
        self.ts += 10
        for number in self._random.sample(range(40), self._random.randint(1, 5)):
            text, old = f"{self.ts} é {number}", self.orders.get(number)
            if old is None:
                self._row("orders", {"u": columns((number, text))}, number)
            elif self._random.random() < 0.3:
                self._row("orders", {"d": columns((number, old))}, number)
                del self.orders[number]
                continue
            else:
                self._row("orders", {"u": columns((number, text)), "p": columns((number, old))}, number)
            self.orders[number] = text
        for _ in range(self._random.randint(0, 2)):  # rows of a table without a key may be equal
            self._row("log", {"u": columns((7, "same"), keyed=False)}, 0)
            self.log.append((7, "same"))

    def _aborted(self) -> None:
        self._producer.begin_transaction()
        before = self.events
        self._row("orders", {"u": columns((self._random.randint(0, 40), "never committed"))}, 1)
        self.events = before
        self._producer.flush(PATIENCE_S)
        self._producer.abort_transaction(PATIENCE_S)

    def _row(self, table: str, value: dict[str, Any], number: int) -> None:
        place = zlib.crc32(f"{table}{number}".encode()) % self.partitions
        self._send(place, {"ts": self.ts, "scm": "shop", "tbl": table, "t": 1}, value)
        self.events += 1

    def _ddl(self, table: str, query: str, kind: int) -> None:
        self.ts += 10
        for place in range(self.partitions):
            self._send(place, {"ts": self.ts, "scm": "shop", "tbl": table, "t": 2}, {"q": query, "t": kind})

    def _resolve(self) -> None:
        for place in range(self.partitions):
            self._send(place, {"ts": self.ts, "t": 3}, None)

    def _send(self, place: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        one, other = framed(key, value)
        self._producer.produce(self.topic, other, one, partition=place)

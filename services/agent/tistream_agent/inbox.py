"""The queue through which threads pass events to the loop of a territory (driver.py). It limits the bytes that are
queued."""

from __future__ import annotations

from collections import deque

from tistream.concurrency import new_condition
from tistream_agent.core.steps import Event, Received

QUEUED_BYTES_MAX = 32 << 20


class Inbox:
    """The events that wait for a territory's loop. Thread-safe. `receive` waits while too many bytes are queued, so
    that streams are not read ahead of the loop."""

    def __init__(self, bytes_max: int = QUEUED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._changed = new_condition()
        self._events: deque[Event] = deque()
        self._queued = 0
        self._reading, self._closed = True, False

    @property
    def queued_bytes(self) -> int:
        """The total size of the queued messages, in bytes."""
        return self._queued

    def put(self, event: Event) -> None:
        """Queue an event. Never blocks."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def receive(self, stream: int, message: bytes) -> bool:
        """Queue a message of a stream. Blocks until there is room and reading is allowed. Returns False after
        `close`."""
        with self._changed:
            while not self._closed and (not self._reading or self._queued >= self._bytes_max):
                self._changed.wait()
            if self._closed:
                return False
            self._queued += len(message)
            last = self._events[-1] if self._events else None
            if isinstance(last, Received) and last.stream == stream and isinstance(last.messages, list):
                last.messages.append(message)
            else:
                self._events.append(Received(stream, [message]))
            self._changed.notify_all()
            return True

    def take(self, wait_s: float) -> list[Event]:
        """Remove and return all queued events. Waits at most `wait_s` seconds for the first one; empty if none
        arrives."""
        with self._changed:
            if not self._events:
                self._changed.wait(wait_s)
            events = list(self._events)
            self._events.clear()
            self._queued = 0
            self._changed.notify_all()
            return events

    def set_reading(self, allowed: bool) -> None:
        """Allow or stop reading streams. While they are not read, their flow-control windows close."""
        with self._changed:
            self._reading = allowed
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting calls of `receive`; they return False."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

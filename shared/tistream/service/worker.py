"""A background loop: a thread that calls a function repeatedly, and continues after errors."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream import cause
from tistream.concurrency import Thread, current_thread, new_event, start_thread
from tistream.errors import RetryableError
from tistream.service.ids import random_id
from tistream.service.observe.metrics import LoopMetrics

log = logging.getLogger(__name__)


class Loop:
    """Runs `body` in a daemon thread until `stop()`. Each call has a cause id (tistream.cause) of its own.

    `body` returns the milliseconds until its next run, or None for `interval_ms`; `wake()` ends the wait. If a call
    raises an error, the error is counted. It is logged if its text differs from that of the previous failure. The next
    call follows after a back-off, which doubles from `interval_ms` (at least 100) up to `backoff_max_ms`.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[], int | None],
        *,
        interval_ms: int,
        backoff_max_ms: int = 5_000,
        metrics: LoopMetrics | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self.name = name
        self.last_error: str | None = None
        self._body = body
        self._interval_ms = interval_ms
        self._backoff_max_ms = backoff_max_ms
        self._backoff_ms = 0
        self._metrics = metrics
        self._new_id = new_id
        self._stopping = new_event()
        self._woken = new_event()
        self._thread: Thread | None = None

    @property
    def stopping(self) -> bool:
        """Whether `stop()` was called. A body that takes long must check it between its steps."""
        return self._stopping.is_set()

    def start(self) -> Loop:
        """Start the thread. Call it only once."""
        assert self._thread is None
        self._thread = start_thread(self.name, self._run)
        return self

    def wake(self) -> None:
        """Call the body now, without waiting for the interval or the back-off. If it is running, it is called once more
        afterwards."""
        self._woken.set()

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Request the end of the loop, and wait up to `timeout_s`. Returns whether it has ended. If the body hangs, its
        thread ends only with the process."""
        self._stopping.set()
        self._woken.set()
        thread = self._thread
        if thread is None:
            return True
        if thread.is_alive() and thread is not current_thread():
            thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            wait_ms = self._once()
            self._woken.wait(wait_ms / 1000)
            self._woken.clear()

    def _once(self) -> int:
        if self._metrics:
            self._metrics.runs.labels(self.name).inc()
        with cause.caused_by(f"{self.name}-{self._new_id()}"):
            return self._run_body()

    def _run_body(self) -> int:
        try:
            wait_ms = self._body()
        except Exception as error:
            return self._failed(error)
        if self.last_error is not None:
            log.info("loop works again", extra={"loop": self.name})
        self.last_error, self._backoff_ms = None, 0
        return self._interval_ms if wait_ms is None else wait_ms

    def _failed(self, error: Exception) -> int:
        if self._metrics:
            self._metrics.errors.labels(self.name).inc()
        text = f"{type(error).__name__}: {error}"
        if text != self.last_error and not self._stopping.is_set():
            # Peers often do not answer, so that is logged briefly; any other error is logged with a traceback.
            expected = isinstance(error, RetryableError)
            level = logging.WARNING if expected else logging.ERROR
            log.log(
                level, "loop failed", exc_info=None if expected else error, extra={"loop": self.name, "error": text}
            )
        self.last_error = text
        self._backoff_ms = min(max(100, self._interval_ms, self._backoff_ms * 2), self._backoff_max_ms)
        return self._backoff_ms

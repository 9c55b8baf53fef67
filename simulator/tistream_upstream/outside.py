"""Two threads that do the I/O of a run: one puts files in order, the other calls the platform."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tistream import concurrency
from tistream.errors import TiStreamError
from tistream.model.span import KeySpan
from tistream.storage.object_store import ObjectStore
from tistream_upstream.effects import Announce, AskCoverage, Push
from tistream_upstream.platform_api import PlatformApi

_RETRY_S = (0.2, 0.5, 1.0, 2.0)
_IDLE_S = 0.5
_ASK_AGAIN_S = 0.5
_ANNOUNCEMENTS_MAX = 1_000
Say = Callable[[str], None]


class Uploader:
    """Puts files in the order in which they were added. A put that fails is retried until it succeeds, because a TiKV
    would keep its data until then."""

    def __init__(self, objects: ObjectStore, put: Callable[[Announce], None], say: Say) -> None:
        """`put` is called with an announcement once the file that it announces is stored."""
        self._objects = objects
        self._announce = put
        self._say = say
        self._queue: deque[Push | Announce] = deque()
        self._woken = concurrency.new_event()
        self._stopping = False
        self.waiting_bytes = 0
        self.refused: str | None = None
        self._thread = concurrency.start_thread("upstream-uploader", self._run)

    def add(self, effect: Push | Announce) -> None:
        """Add a file or an announcement to the queue."""
        if isinstance(effect, Push):
            self.waiting_bytes += len(effect.body)
        self._queue.append(effect)
        self._woken.set()

    @property
    def idle(self) -> bool:
        """Whether all files have been stored."""
        return not self._queue

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._woken.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping:
            if not self._queue:
                self._woken.wait(_IDLE_S)
                self._woken.clear()
                continue
            effect = self._queue[0]
            if isinstance(effect, Push):
                self._put(effect)
                self.waiting_bytes -= len(effect.body)
            else:
                self._announce(effect)
            self._queue.popleft()

    def _put(self, push: Push) -> None:
        tries = 0
        while True:
            try:
                self._objects.put(push.key, push.body)
            except TiStreamError as error:
                if self.refused is None:
                    self._say(f"the object store refuses files, retrying until it takes them: {error}")
                self.refused = str(error)
                if self._stopping:
                    return
                concurrency.sleep(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
                tries += 1
                continue
            if self.refused is not None:
                self._say(f"the object store takes files again, after {tries} attempts")
                self.refused = None
            return


class Talker:
    """Announces files, asks for coverage, and reads the tenant's lag, in a thread. The platform may be unavailable at
    any time."""

    def __init__(self, api: PlatformApi, say: Say) -> None:
        self._api = api
        self._say = say
        self._announcements: deque[Announce] = deque(maxlen=_ANNOUNCEMENTS_MAX)
        self._questions: deque[AskCoverage] = deque()
        self.answers: deque[tuple[AskCoverage, list[tuple[KeySpan, int]]]] = deque()
        self.lag_seconds: float | None = None
        self.away: str | None = None
        self._woken = concurrency.new_event()
        self._stopping = False
        self._thread = concurrency.start_thread("upstream-talker", self._run)

    def announce(self, announce: Announce) -> None:
        """Queue an announcement. If the queue is full, the oldest announcement is dropped."""
        self._announcements.append(announce)
        self._woken.set()

    def ask(self, question: AskCoverage) -> None:
        """Queue a request for coverage. It is repeated until the platform answers."""
        self._questions.append(question)
        self._woken.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._woken.set()
        self._thread.join(6)

    def _run(self) -> None:
        rounds = 0
        while not self._stopping:
            busy = self._try(self._next)
            if busy is None:  # the platform did not answer
                concurrency.sleep(_ASK_AGAIN_S)
                continue
            if not busy:
                if rounds % 2 == 0:
                    self._try(self._look)
                rounds += 1
                self._woken.wait(_IDLE_S)
                self._woken.clear()

    def _try(self, act: Callable[[], bool]) -> bool | None:
        """Call `act`. Returns its result, or None if the platform did not answer."""
        try:
            busy = act()
        except TiStreamError as error:
            if self.away is None:
                self._say(f"the platform does not answer, retrying: {error}")
            self.away = str(error)
            self.lag_seconds = None  # the last known value is outdated
            return None
        if self.away is not None:
            self._say("the platform answers again")
            self.away = None
        return busy

    def _next(self) -> bool:
        if self._questions:
            question = self._questions[0]
            self.answers.append((question, self._api.coverage(question.span)))
            self._questions.popleft()
            return True
        if self._announcements:
            self._api.announce(self._announcements.popleft())
            return True
        return False

    def _look(self) -> bool:
        self.lag_seconds = self._api.lag_seconds()
        return True

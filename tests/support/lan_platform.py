"""Services one by one, each in a network namespace of its own, on one directory of objects and one database file: what
`tistream up` runs, on as many machines as there are processes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from support.lan import Lan
from support.services import Services

PORT = 8000
CLIENT = "client"


@dataclass
class LanPlatform(Services):
    """As Services; any two of them can be cut off from each other."""

    _lan: Lan | None = None

    @property
    def lan(self) -> Lan:
        assert self._lan is not None, "not started"
        return self._lan

    def host(self, name: str) -> str:
        return self.lan.addresses[name]

    def command(self, name: str) -> list[str]:
        return self.lan.command(name, super().command(name))

    def ports(self) -> dict[str, int]:
        return dict.fromkeys(self.names(), PORT)

    def launch(self) -> None:
        self._lan = Lan(f"ts{uuid.uuid4().hex[:6]}")
        for name in [*self.names(), CLIENT]:
            self.lan.join(name)
        super().launch()

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        with self.lan.within(CLIENT):
            yield

    def cut(self, one: str, other: str) -> contextlib.AbstractContextManager[None]:
        """Nothing passes between two services; every process of a kind where no number is given."""
        stack = contextlib.ExitStack()
        for here in self.of_service(one):
            for there in self.of_service(other):
                if here != there:
                    stack.enter_context(self.lan.cut(here, there))
        return stack

    def close(self) -> None:
        """Whatever happened: no process, no namespace."""
        super().close()
        if self._lan is not None:
            self._lan.close()

"""The owner's copy of the database: whatever is written, it stays the same as what is read anew."""

from __future__ import annotations

import random
from pathlib import Path

from support.effort import seeds
from support.meta_database import database_url
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.model import Change, Child, Seal
from tistream_meta.decide.split_merge import Succession, TaskOrder, halves
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command
from tistream_meta.owner.owner_copy import OwnerCopy

SORTERS = ["sorter-1", "sorter-2", "sorter-3"]
TENANTS = [TenantKey("c", name) for name in ("a", "b", "c")]
WHOLE = KeySpan(b"", b"")


class Owner:
    """Does at random what an owner does, and takes each change into its book."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.repository = Repository.open(database_url(folder), "meta-1")
        self.repository.prepare()
        self.repository.take_ownership(60_000, "http://meta")
        self.book = OwnerCopy(self.repository.plan())

    def step(self) -> None:
        act = self.rng.choice(
            [self.register, self.create, self.activate, self.command, self.command, self.split, self.merge, self.drain]
        )
        change = act()
        if change is not None:
            self.book.take(change)

    def register(self) -> Change | None:
        name = self.rng.choice(SORTERS)
        number = self.repository.new_start()
        return self.repository.register(name, "sorter", f"http://{name}:{number}", Start(f"i{number}", number))[1]

    def create(self) -> Change | None:
        return self.repository.create_tenant(self.rng.choice(TENANTS))[1]

    def activate(self) -> Change | None:
        key = self.rng.choice(TENANTS)
        if key not in self.book.tenants or self.rng.random() < 0.3:
            return None if key not in self.book.tenants else self.repository.set_problem(key, str(self.rng.random()))
        return self.repository.activate(key, 42, halves(WHOLE, b"m") or ())

    def command(self) -> Change | None:
        if not self.book.tasks:
            return None
        chosen = self.rng.sample(sorted(self.book.tasks), min(3, len(self.book.tasks)))
        step = self.rng.choice([PhaseEvent.PREPARE, PhaseEvent.HAND_OVER, PhaseEvent.ABANDON])
        return self.repository.execute_moves([Command(task, step, self.rng.choice(SORTERS)) for task in chosen])

    def split(self) -> Change | None:
        tasks = self.book.in_order()
        if not tasks:
            return None
        task = self.rng.choice(tasks)
        first = self.repository.new_task_ids(2)
        spans = halves(task.span, task.span.start + bytes([self.rng.randrange(1, 255)]))
        if spans is None:
            return None
        children = tuple(Child(first + at, span) for at, span in enumerate(spans))
        self.book.take(self.repository.order_seals([TaskOrder((task.task_id,), Seal(children), "test")]))
        if self.rng.random() < 0.4:
            return self.repository.order_seals([TaskOrder((task.task_id,), None, "test")])
        return self.repository.replace_sealed([Succession(task.tenant, (task.task_id,), children)])

    def merge(self) -> Change | None:
        for key in TENANTS:
            tasks = self.book.tasks_of(key)
            if len(tasks) > 2:
                left, right = tasks[:2]
                child = Child(self.repository.new_task_ids(1), KeySpan(left.span.start, right.span.end))
                return self.repository.replace_sealed([Succession(key, (left.task_id, right.task_id), (child,))])
        return None

    def drain(self) -> Change | None:
        if not self.book.nodes:
            return None
        return self.repository.drain(self.rng.choice(sorted(self.book.nodes)), self.rng.random() < 0.5)


def test_the_book_is_what_the_database_has(tmp_path: Path) -> None:
    cut = 0
    tried = seeds(4, 10)
    for seed in tried:
        folder = tmp_path / str(seed)
        folder.mkdir()
        owner = Owner(folder, seed)
        for _ in range(80):
            owner.step()
        anew = OwnerCopy(owner.repository.plan())
        assert (owner.book.version, owner.book.tenants, owner.book.nodes) == (anew.version, anew.tenants, anew.nodes)
        assert owner.book.tasks == anew.tasks
        assert owner.book.in_order() == anew.in_order()
        assert owner.book.sealing == anew.sealing
        for name in SORTERS:
            assert owner.book.tasks_at([name]) == anew.tasks_at([name])
        cut += sum(bool(task.parents) for task in anew.tasks.values())
    assert cut > len(tried), "some were split or merged"


def test_a_task_id_is_never_given_twice_though_its_task_is_gone(tmp_path: Path) -> None:
    owner = Owner(tmp_path, 1)
    given: list[int] = []
    for _ in range(60):
        owner.step()
        given += [task for task in owner.book.tasks if task not in given]
    assert owner.repository.new_task_ids(1) > max(given)

"""Tokens at the meta server: what is kept, who is told, and the first one."""
# Attack: thousands of tokens of one tenant: a quota

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from support.metas import LEASE_MS
from support.waiting import PATIENCE_S, eventually
from tistream.clock import ManualClock, SystemClock
from tistream.errors import AlreadyDiffers, InvalidRequest, LimitReached, Unavailable, UnknownName
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.tokens import EVERYTHING, Grant, StoreToken, hash_of
from tistream_meta.app import build_app
from tistream_meta.database import token_rows
from tistream_meta.database.repository import Repository
from tistream_meta.settings import MetaSettings
from tistream_meta.tenants import token_board
from tistream_meta.tenants.token_board import TokenBoard

FAR_MS = 1 << 52
FIRST = "tst_00000000000000aa_" + "F" * 43


def token(number: int, secret: str = "s", **more: int) -> StoreToken:
    grants = [Grant(actions=["read"], cluster="7", tenant="acme", database="dé", table="𝄞")]
    return StoreToken(token_id=f"{number:016x}", secret_hash=hash_of(secret), label="l", grants=grants, **more)


@pytest.fixture
def repository(database_url: str) -> Iterator[Repository]:
    one = Repository.open(database_url, "meta-1")
    one.prepare()
    one.take_ownership(60_000, "http://meta-1")
    yield one
    one.close()


def test_a_token_is_kept_without_its_secret_and_revoked_once(repository: Repository) -> None:
    before = repository.tokens_version()
    made = repository.store_token(token(1, expires_ms=FAR_MS))
    assert made == repository.store_token(token(1, expires_ms=FAR_MS)), "the same again is the same"
    with pytest.raises(AlreadyDiffers):
        repository.store_token(token(1, "another"))
    repository.store_token(token(2))
    known = repository.known_tokens()
    assert [one.token_id for one in known.tokens] == [f"{1:016x}", f"{2:016x}"]
    assert known.tokens[0].grants == made.grants
    assert known.version == before + 2
    revoked = repository.revoke_token(f"{1:016x}")
    assert revoked.revoked_ms is not None
    assert repository.revoke_token(f"{1:016x}") == revoked
    assert repository.store_token(token(1, expires_ms=FAR_MS)).revoked_ms is not None, "made again it stays revoked"
    assert [one.token_id for one in repository.known_tokens().tokens] == [f"{2:016x}"]
    assert repository.tokens_version() == before + 3
    assert len(repository.tokens()) == 2
    with pytest.raises(UnknownName):
        repository.revoke_token("f" * 16)


def test_a_first_token_with_another_secret_than_the_stored_one_keeps_no_token_from_readers(
    repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.store_token(token(1))
    board = TokenBoard(repository, ManualClock(0), lambda: True, first=token(1, "another"))
    for _ in range(2):
        board.look()
    assert [one.secret_hash for one in board.wait(0, 0).tokens] == [hash_of("s")]
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == ["first token not stored"]


def test_a_token_that_has_expired_is_told_no_more(repository: Repository) -> None:
    for number, expires_ms in ((1, 5), (2, FAR_MS), (3, None)):
        repository.store_token(token(number, **({} if expires_ms is None else {"expires_ms": expires_ms})))
    assert [one.token_id for one in repository.known_tokens().tokens] == [f"{2:016x}", f"{3:016x}"]
    assert len(repository.tokens()) == 3


def of_tenant(number: int, tenant: str, names: int = 0) -> StoreToken:
    grants = [Grant(actions=["read"], cluster="7", tenant=tenant, database=f"{name:0250}") for name in range(names)]
    grants = grants or [Grant(actions=["read"], cluster="7", tenant=tenant)]
    return StoreToken(token_id=f"{number:016x}", secret_hash=hash_of("s"), grants=grants)


def test_there_are_as_many_of_one_tenant_as_may_be(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_rows, "VALID_MAX", 3)
    monkeypatch.setattr(token_rows, "ENDED_MAX", 2)
    for number in range(3):
        repository.store_token(of_tenant(number, "acme"))
    with pytest.raises(LimitReached, match=r"3 tokens of tenant 7/acme are valid.*revoke some first"):
        repository.store_token(of_tenant(3, "acme"))
    assert repository.store_token(of_tenant(2, "acme")).revoked_ms is None, "what is there is told again"
    repository.store_token(of_tenant(4, "beta"))
    for number in range(5, 10):
        everything = StoreToken(token_id=f"{number:016x}", secret_hash=hash_of("s"), grants=[EVERYTHING])
        repository.store_token(everything)
    for number in range(100, 110):
        repository.revoke_token(f"{2 if number == 100 else number - 1:016x}")
        repository.store_token(of_tenant(number, "acme"))
    known = {one.token_id for one in repository.known_tokens().tokens}
    assert known == {f"{number:016x}" for number in (0, 1, 4, 5, 6, 7, 8, 9, 109)}
    ended = [one.token_id for one in repository.tokens() if one.revoked_ms is not None]
    assert len(ended) <= 3, "two, and the one that has ended since"
    assert f"{108:016x}" in ended


def test_tokens_for_parts_of_a_tenant_and_of_several_leave_room_for_its_own(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may make them cannot be hindered by tokens that it may not see."""
    monkeypatch.setattr(token_rows, "VALID_MAX", 2)
    numbers = iter(range(1_000))

    def store(*grants: Grant) -> None:
        token_id = f"{next(numbers):016x}"
        repository.store_token(StoreToken(token_id=token_id, secret_hash=hash_of("s"), grants=list(grants)))

    one, another = (Grant(actions=["read"], cluster="7", tenant=name) for name in ("acme", "beta"))
    whole = Grant(actions=["read"], cluster="7")
    elsewhere = Grant(actions=["read"], cluster="8")
    for grants in (
        (one.model_copy(update={"database": "d"}),),
        (one, another),
        (elsewhere, one),
        (one,),
        (another,),
        (whole,),
        (elsewhere,),
    ):
        for _ in range(2):
            store(*grants)
        with pytest.raises(LimitReached, match=r"2 tokens of .* are valid"):
            store(*grants)
    with pytest.raises(LimitReached, match="2 tokens of parts of tenant 7/acme are valid"):
        store(one.model_copy(update={"database": "e", "table": "t"}))


def test_what_the_tokens_of_one_tenant_grant_is_so_long_at_most(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_rows, "BYTES_MAX", 20_000)
    repository.store_token(of_tenant(1, "acme", names=40))
    with pytest.raises(
        LimitReached, match="the grants of the valid tokens of parts of tenant 7/acme would exceed 20000 bytes"
    ):
        repository.store_token(of_tenant(2, "acme", names=40))
    repository.revoke_token(f"{1:016x}")
    repository.store_token(of_tenant(2, "acme", names=40))
    hostile = [Grant(actions=["read"], cluster="7", tenant="acme", database="𝄞" * 200, table="𝄞" * 200)] * 10
    with pytest.raises(InvalidRequest, match="make several tokens, or grant a whole database or tenant"):
        repository.store_token(StoreToken(token_id=f"{3:016x}", secret_hash=hash_of("s"), grants=hostile))


def test_a_board_that_cannot_read_the_database_any_more_tells_nothing(repository: Repository) -> None:
    clock = ManualClock()
    board = TokenBoard(repository, clock, lambda: True)
    with pytest.raises(Unavailable):
        board.wait(-1, 0)
    board.look()
    assert board.wait(-1, 0).tokens == []
    clock.advance(token_board.STALE_MS)
    assert board.wait(-1, 0).tokens == []
    clock.advance(1)
    with pytest.raises(Unavailable):
        board.wait(-1, 0)


def test_who_waits_is_told_of_what_another_meta_server_wrote(repository: Repository) -> None:
    board = TokenBoard(repository, SystemClock(), lambda: False)
    board.look()
    version, told = board.wait(-1, 0).version, []
    waiting = threading.Thread(target=lambda: told.append(board.wait(version, int(PATIENCE_S * 1000))))
    waiting.start()
    repository.store_token(token(3))
    board.look()
    waiting.join(PATIENCE_S)
    assert [one.token_id for one in told[0].tokens] == [f"{3:016x}"]


def test_a_board_without_readers_rests_until_one_comes(repository: Repository) -> None:
    clock = ManualClock()
    board = TokenBoard(repository, clock, lambda: False)
    board.wake = lambda: threading.Thread(target=board.look).start()
    assert board.look() == token_board.REST_MS
    repository.store_token(token(3))
    clock.advance(token_board.REST_MS)
    eventually(lambda: [one.token_id for one in board.wait(-1, 0).tokens] == [f"{3:016x}"])
    clock.advance(token_board.REST_AFTER_MS - 1)
    assert board.look() == token_board.LOOK_MS
    clock.advance(1)
    assert board.look() == token_board.REST_MS


def test_the_first_token_may_do_everything_until_it_is_revoked_for_good(tmp_path: Path) -> None:
    path = tmp_path / "first.token"
    path.write_text(FIRST + "\n")
    url = f"sqlite:///{tmp_path}/meta.db"
    settings = MetaSettings(database_url=url, first_token_file=path, lease_ms=LEASE_MS)
    for still_valid in (True, False):
        with TestClient(build_app(settings, MemoryObjectStore(), SystemClock())) as http:

            def known(http: TestClient = http) -> list[dict]:
                answer = http.get("/upcall/v1/tokens")
                return answer.json()["tokens"] if answer.status_code == 200 else []

            if still_valid:
                eventually(known)
                [one] = known()
                assert one["secret_hash"] == hash_of("F" * 43)
                assert Grant(**one["grants"][0]) == EVERYTHING
                assert "F" * 43 not in (tmp_path / "meta.db").read_bytes().decode("latin-1")
                assert http.delete(f"/v1/tokens/{one['token_id']}").status_code == 200
                eventually(lambda: not known())
            else:
                eventually(lambda: http.get("/upcall/v1/tokens").status_code == 200)
                [one] = http.get("/v1/tokens").json()["tokens"]
                assert one["revoked_ms"] is not None
                assert known() == []


@pytest.mark.parametrize("text", ["", "tst_", FIRST[:-1], FIRST + "A", FIRST.upper()])
def test_a_first_token_that_is_none_keeps_the_server_from_starting_and_is_not_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "first.token"
    path.write_text(text)
    with pytest.raises(ValidationError) as raised:
        MetaSettings(first_token_file=path)
    assert "has no token: `tistream token new --out" in str(raised.value)
    assert not text or text not in raised.value.errors()[0]["msg"]


def test_a_first_token_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cannot be read"):
        MetaSettings(first_token_file=tmp_path / "none")

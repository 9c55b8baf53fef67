"""Secrets: who can open them, and what refers to them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.secret_pair import new_pair
from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.secrets.references import filled, masked, names_in
from tistream.secrets.sealing import BadKey, NotOpened, opened, private_keys, public_key, seal

ACME, OTHER = TenantKey("7", "acme"), TenantKey("7", "other")
PRIVATE, PUBLIC = new_pair(b"1" * 32)
NEWER, NEWER_PUBLIC = new_pair(b"2" * 32)


@given(st.text(min_size=1, max_size=300))
def test_a_secret_is_opened_by_its_private_key(value: str) -> None:
    sealed = seal(public_key(PUBLIC), ACME, "kafka", value)
    assert value not in sealed or len(value) < 4
    assert opened(private_keys(PRIVATE), ACME, "kafka", sealed) == value


def test_keys_are_replaced_one_after_the_other() -> None:
    old = seal(public_key(PUBLIC), ACME, "kafka", "before")
    new = seal(public_key(PUBLIC + NEWER_PUBLIC), ACME, "kafka", "after")
    both = private_keys(PRIVATE + NEWER)
    assert [opened(both, ACME, "kafka", one) for one in (old, new)] == ["before", "after"]
    with pytest.raises(NotOpened, match="no key of this worker opens secret kafka of tenant 7/acme"):
        opened(private_keys(NEWER), ACME, "kafka", old)


@pytest.mark.parametrize(("tenant", "name"), [(OTHER, "kafka"), (ACME, "mysql")])
def test_a_sealed_text_that_was_copied_does_not_open(tenant: TenantKey, name: str) -> None:
    sealed = seal(public_key(PUBLIC), ACME, "kafka", "hunter2")
    with pytest.raises(NotOpened, match="was sealed for another tenant or name"):
        opened(private_keys(PRIVATE), tenant, name, sealed)


def test_a_sealed_text_that_was_changed_does_not_open() -> None:
    sealed = bytearray(base64.b64decode(seal(public_key(PUBLIC), ACME, "kafka", "hunter2")))
    sealed[-1] ^= 1
    with pytest.raises(NotOpened):
        opened(private_keys(PRIVATE), ACME, "kafka", base64.b64encode(bytes(sealed)).decode())
    with pytest.raises(NotOpened):
        opened(private_keys(PRIVATE), ACME, "kafka", "no base64!")


@pytest.mark.parametrize("text", ["", "not base64!", base64.b64encode(b"short").decode()])
def test_files_without_a_key(text: str) -> None:
    for read in (public_key, private_keys):
        with pytest.raises(BadKey) as told:
            read(text)
        assert not text or text not in str(told.value)


def test_references_are_found_and_filled() -> None:
    uri = "kafka://b:9092/t?sasl-user=${secret:user}&sasl-password=${secret:kafka.pw-1}"
    assert names_in(uri, {"sink": {"ca": "${secret:ca}"}}) == {"ca", "user", "kafka.pw-1"}
    assert filled(uri, {"user": "u", "kafka.pw-1": "$&"}) == "kafka://b:9092/t?sasl-user=u&sasl-password=$&"
    with pytest.raises(KeyError):
        filled(uri, {"user": "u"})


@pytest.mark.parametrize("name", ["", "UPPER", "a/b", "../x", "a" * 64, "${secret:b"])
def test_names_that_no_secret_has(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a secret's name"):
        names_in(f"kafka://b/t?x=${{secret:{name}}}", {})


def test_values_are_masked_in_what_others_said() -> None:
    assert masked("login of bob with hunter2 failed: hunter22", ["hunter2", "hunter22", "bob"]) == (
        "login of bob with *** failed: ***"
    )

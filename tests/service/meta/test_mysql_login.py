"""How a meta server comes to its database: over TLS, with the least privileges, with a password that nobody is told."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from support.certificates import make
from support.mariadb import MariaDb
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.service.settings import SettingsError, load_settings
from tistream_meta.database.engine import open_engine
from tistream_meta.database.repository import Repository
from tistream_meta.migrations import files
from tistream_meta.settings import MetaSettings

# As docs/database.md has it.
PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX"


@pytest.fixture
def over_tls(mariadb: MariaDb, mysql_url: str, tmp_path: Path) -> Iterator[str]:
    """The URL for a user that is let in over TLS alone; the server's certificate is tmp_path/server.pem."""
    certificate, key = make(tmp_path, "server")
    database = mysql_url.rsplit("/", 1)[1]
    mariadb.stop()
    before, mariadb.options = mariadb.options, (*mariadb.options, f"--ssl-cert={certificate}", f"--ssl-key={key}")
    mariadb.start()
    mariadb.run("CREATE OR REPLACE USER safe@127.0.0.1 IDENTIFIED BY 'hunter2' REQUIRE SSL")
    mariadb.run(f"GRANT {PRIVILEGES} ON {database}.* TO safe@127.0.0.1")
    yield mysql_url.replace("tistream:secret@", "safe:hunter2@")
    mariadb.stop()
    mariadb.options = before
    mariadb.start()


def test_it_is_reached_over_tls_if_its_certificate_is_the_one(over_tls: str, tmp_path: Path) -> None:
    engine = open_engine(f"{over_tls}?ssl_ca={tmp_path / 'server.pem'}")
    with engine.connect() as connection:
        assert connection.execute(text("SHOW STATUS LIKE 'Ssl_cipher'")).one()[1]
    assert Repository(engine, "meta-1").prepare()
    engine.dispose()
    make(tmp_path, "other")
    for url in (
        f"{over_tls}?ssl_ca={tmp_path / 'other.pem'}",
        over_tls.replace("127.0.0.1", "localhost") + "?ssl_ca=" + str(tmp_path / "server.pem"),
        f"{over_tls}?ssl_ca={tmp_path / 'missing.pem'}",
    ):
        repository = Repository.open(url, "meta-1")
        with pytest.raises(Unavailable) as refused:
            repository.owner()
        assert "hunter2" not in str(refused.value)
        repository.close()


def test_it_needs_no_more_privileges_than_are_told(mariadb: MariaDb, mysql_url: str, tmp_path: Path) -> None:
    database = mysql_url.rsplit("/", 1)[1]
    mariadb.run("CREATE OR REPLACE USER least@127.0.0.1 IDENTIFIED BY 'hunter2'")
    mariadb.run(f"GRANT {PRIVILEGES} ON {database}.* TO least@127.0.0.1")
    options = tmp_path / "my.cnf"
    options.write_text("[client]\nuser=least\npassword=hunter2\n")
    url = mysql_url.replace("tistream:secret@", "")
    repository = Repository.open(f"{url}?read_default_file={options}", "meta-1")
    repository.prepare()
    repository.take_ownership(60_000, "http://meta-1")
    repository.activate(repository.create_tenant(TenantKey("7", "acme"))[0].key, 42, (WHOLE,))
    assert repository.prepare() == max(files("mysql"))
    assert len(repository.plan().tasks) == 1
    repository.close()


def test_an_option_that_nobody_knows_is_named_and_so_are_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TISTREAM_META__DATABASE_URL", "mysql+pymysql://tistream:hunter2@host/db?ssl_chek_hostname=true")
    with pytest.raises(SettingsError, match=r"TISTREAM_META__DATABASE_URL.*'ssl_chek_hostname'.*ssl_check_hostname"):
        load_settings(MetaSettings)


@pytest.mark.parametrize("text", ["password=hunter2\n", "[client]\npassword=hunter2\npassword=hunter2\n"])
def test_a_file_of_options_that_is_none_is_told_without_its_password(text: str, tmp_path: Path) -> None:
    options = tmp_path / "my.cnf"
    options.write_text(text)
    repository = Repository.open(f"mysql+pymysql://127.0.0.1:9/db?read_default_file={options}", "meta-1")
    with pytest.raises(Unavailable, match="read_default_file") as refused:
        repository.owner()
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    repository.close()


@pytest.mark.parametrize(
    "url",
    [
        "mysql+pymysql//tistream:hunter2@host/db",
        "mysql+pymysql://tistream:hunter2@host:port/db",
        "postgresql://tistream:hunter2@host/db",
        "mysql://tistream:hunter2@host/db",
        "mysql+pymysql://tistream:hunter2@host/db?foo=1",
        "mysql+pymysql://tistream:hunter2@host/db?autocommit=true",
        "mysql+pymysql://tistream:hunter2@host/db?ssl_ca=/a.pem&ssl_ca=/b.pem",
        "mysql+pymysql://tistream:hunter2@host/db?ssl_check_hostname=perhaps",
        "sqlite:///meta.db?foo=1",
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TISTREAM_META__DATABASE_URL", url)
    with pytest.raises(SettingsError, match="TISTREAM_META__DATABASE_URL") as refused:
        load_settings(MetaSettings)
    assert "hunter2" not in str(refused.value)


def test_a_process_with_such_a_url_ends_with_one_line_that_tells_no_password() -> None:
    environ = {**os.environ, "TISTREAM_META__DATABASE_URL": "mysql+pymysql://tistream:hunter2@host:port/db"}
    command = [sys.executable, "-m", "tistream_meta"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "hunter2" not in ended.stderr + ended.stdout

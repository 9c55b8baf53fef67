"""Clients that generators of Go and TypeScript make from the OpenAPI document pull and follow (client/examples)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from support import golden, kept, platform
from support.not_run import not_run
from support.platform import Platform
from support.pull import Event, parse
from support.waiting import eventually

SET = golden.load("large")
TABLE = ("wide", "large")
EXAMPLES = Path(__file__).parents[2] / "client" / "examples"
CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
NPM = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.25")

Build = Callable[[Platform, Path], list[str]]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    with platform.running(tmp_path / "platform", killed=True) as started:
        yield started


def go(up: Platform, folder: Path) -> list[str]:
    """The command of the Go example, with the client of oapi-codegen."""
    try:
        generator = kept.built(CODEGEN, "oapi-codegen-v2.8.2")
    except kept.NotHad as reason:
        not_run(reason)
    (folder / "tistream").mkdir()
    run(
        [
            generator,
            "-generate",
            "types,client",
            "-package",
            "tistream",
            "-o",
            "tistream/client.go",
            document(up, folder),
        ],
        folder,
    )
    shutil.copy(EXAMPLES / "go" / "main.go", folder)
    (folder / "go.mod").write_text("module example.com/follow\n\ngo 1.24\n")
    for words in (["mod", "tidy"], ["vet", "."], ["build", "-o", "follow", "."]):
        run(["go", *words], folder)
    return [str(folder / "follow")]


def typescript(up: Platform, folder: Path) -> list[str]:
    """The command of the TypeScript example, with the types of openapi-typescript."""
    if shutil.which("npm") is None:
        not_run("no npm for TypeScript")
    shutil.copy(EXAMPLES / "typescript" / "follow.ts", folder)
    (folder / "package.json").write_text('{"type": "module", "private": true}')
    run(["npm", "install", "--no-audit", "--no-fund", *NPM], folder)
    run(["npx", "openapi-typescript", document(up, folder), "-o", "tistream.d.ts"], folder)
    strict = ["--strict", "--noUncheckedIndexedAccess", "--skipLibCheck"]
    run(["npx", "tsc", *strict, "--module", "nodenext", "--target", "es2022", "follow.ts"], folder)
    return ["node", str(folder / "follow.js")]


def document(up: Platform, folder: Path) -> str:
    """The file of the OpenAPI document, as the API server gives it."""
    with up.patient_http() as http:
        (folder / "openapi.json").write_bytes(http.get(f"{up.url}/openapi.json").raise_for_status().content)
    return "openapi.json"


def run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]} {done.stderr[-2_000:]}"


def stored(file: Path) -> list[Event]:
    return [parse(line) for line in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []


def reached(file: Path) -> int:
    """The highest resolved_ts in the file."""
    return max((int(event["resolved_ts"]) for event in stored(file) if event["type"] == "resolved"), default=0)


# Attack: the API server is killed; the program is killed, and finds an answer that was written in part
@pytest.mark.parametrize("build", [go, typescript])
def test_a_generated_client_writes_each_change_once_and_in_order(up: Platform, tmp_path: Path, build: Build) -> None:
    folder, file = tmp_path / "example", tmp_path / "large.ndjson"
    folder.mkdir()
    command = build(up, folder)
    half = len(SET.files) // 2
    golden.put(up.objects, SET.schema_snap)
    consumer = up.create_for(SET)
    golden.push(SET.files[:half], up.objects)
    consumer.wait_for(SET.snapshot_ts + 1)
    of = [up.url, SET.tenant.cluster_id, SET.tenant.tenant_id, *TABLE, str(SET.snapshot_ts), str(file)]
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen([*command, *of], stdout=log, stderr=log)
        try:
            eventually(lambda: running.poll() is not None or reached(file) > SET.snapshot_ts)
            up.kill("api")
            running.send_signal(signal.SIGKILL)
            running.wait()
            with file.open("ab") as torn:
                torn.write(b'{"type":"row","op":"put"}\n{"type":"resol')
            running = subprocess.Popen([*command, *of], stdout=log, stderr=log)
            golden.push(SET.files[half:], up.objects)
            eventually(lambda: running.poll() is not None or reached(file) >= SET.end_ts)
        finally:
            running.kill()
            running.wait()
    events = [event for event in stored(file) if event["type"] in ("row", "ddl")]
    assert events, (tmp_path / "log").read_text()
    wanted = consumer.pull(*TABLE, until_ts=SET.end_ts, start_ts=SET.snapshot_ts)
    assert events == [event for event in wanted if event["type"] in ("row", "ddl")], (tmp_path / "log").read_text()
    assert json.loads(file.read_bytes().split(b"\n")[-2])["cursor"]

"""The supervisor with real processes: small shell and Python programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.ahead_clock import AheadClock
from support.waiting import PATIENCE_S, eventually
from tistream.clock import ManualClock, SystemClock
from tistream.service.lifetime import PARENT_VARIABLE
from tistream_cli.processes.restarts import Restarts
from tistream_cli.processes.supervisor import LOOK_MS, ChildSpec, ExitedChild, Supervisor, session_members

GRACE_MS = int(PATIENCE_S * 1000)

# A child with a child of its own, which ignores everything but SIGKILL.
_FAMILY = """
import os, signal, subprocess, sys, time
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
grandchild = subprocess.Popen([sys.executable, "-c", inner])
print("family", os.getpid(), grandchild.pid, flush=True)
time.sleep(600)
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed grandchild that nobody reaps is dead all the same.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _family(log: Path, count: int = 1) -> list[int]:
    """The last family that said its pids, once `count` families have."""

    def said() -> list[str]:
        return [line for line in log.read_text().splitlines() if line.startswith("family")] if log.exists() else []

    eventually(lambda: len(said()) >= count)
    return [int(pid) for pid in said()[-1].split()[1:]]


def _python(name: str, code: str, **env: str) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", code), env)


MakeSpec = Callable[[str], ChildSpec]


@pytest.fixture(params=["executed", "forked"])
def of_code(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSpec:
    """Makes the spec of a child `child` that runs a program: by a new interpreter, or in a fork."""
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), *sys.path]))

    def spec(code: str) -> ChildSpec:
        if request.param == "executed":
            return _python("child", code, OWN="x")
        (modules / "program.py").write_text(code)
        return ChildSpec("child", (sys.executable, "-m", "program", "child"), {"OWN": "x"}, imports=("json",))

    return spec


def _poll_until_ended(supervisor: Supervisor) -> ExitedChild:
    found: list[ExitedChild] = []
    eventually(lambda: found.extend(supervisor.poll()) or found)
    return found[0]


class Ticking(ManualClock):
    """A second passes between two looks at it."""

    def monotonic_ms(self) -> int:
        self.advance(1_000)
        return super().monotonic_ms()


def test_stop_takes_the_whole_family(tmp_path: Path, of_code: MakeSpec) -> None:
    supervisor = Supervisor([of_code(_FAMILY)], tmp_path, SystemClock())
    supervisor.start()
    family = _family(tmp_path / "child.log")
    assert set(session_members(family[0])) == set(family)
    supervisor.stop(GRACE_MS)
    eventually(lambda: not any(map(_alive, family)))


def test_stop_does_not_wait_longer_than_its_grace(tmp_path: Path) -> None:
    clock = Ticking()
    supervisor = Supervisor([_python("child", _FAMILY, STUBBORN="1")], tmp_path, clock)
    supervisor.start()
    family = _family(tmp_path / "child.log")
    before_ms = clock.monotonic_ms()
    supervisor.stop(grace_ms=10_000)
    assert 10_000 <= clock.monotonic_ms() - before_ms <= 15_000
    eventually(lambda: not any(map(_alive, family)))


# Says that it has been told to end, a while after.
_SAYS = """
import os, signal, sys, time
def end(*_):
    print("told", flush=True)
    time.sleep(float(os.environ["AFTER"]))
    with open(os.environ["SAID"], "a") as said:
        said.write(os.environ["NAME"])
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("after", "told"), [("0.7", "ab"), ("3600", "b")])
def test_what_is_last_is_stopped_when_the_others_have_ended_or_had_their_time(
    tmp_path: Path, after: str, told: str
) -> None:
    said = tmp_path / "said"
    children = [
        ChildSpec(name, (sys.executable, "-c", _SAYS), {"SAID": str(said), "NAME": name, "AFTER": wait}, last=last)
        for name, wait, last in (("b", "0", True), ("a", after, False))
    ]
    clock = AheadClock()
    supervisor = Supervisor(children, tmp_path, clock)
    supervisor.start()
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    eventually(lambda: all(log.exists() and "up" in log.read_text() for log in logs))
    with ThreadPoolExecutor(1) as beside:
        stopping = beside.submit(supervisor.stop, 5 * GRACE_MS)
        eventually(lambda: "told" in logs[0].read_text())
        if told == "b":
            clock.advance(4 * GRACE_MS)  # the others' part of the time
            eventually(lambda: said.exists() and said.read_text() == told)
            clock.advance(GRACE_MS)
        stopping.result()
    assert said.read_text() == told


def test_child_that_dies_is_started_again_and_its_own_children_end_with_it(tmp_path: Path, of_code: MakeSpec) -> None:
    supervisor = Supervisor([of_code(_FAMILY)], tmp_path, SystemClock())
    supervisor.start()
    first = _family(tmp_path / "child.log")
    os.kill(first[0], signal.SIGKILL)
    ended = _poll_until_ended(supervisor)
    assert ended == ExitedChild("child", -signal.SIGKILL, 0)
    eventually(lambda: not _alive(first[1]))
    eventually(lambda: supervisor.poll() or "family" in (tmp_path / "child.log").read_text().split("\n", 1)[1])
    second = _family(tmp_path / "child.log", 2)
    assert not set(first) & set(second)
    supervisor.stop(GRACE_MS)


def test_status_and_output_of_a_child_that_fails(tmp_path: Path, of_code: MakeSpec) -> None:
    spec = of_code("import sys; print('to stdout', flush=True); sys.exit('to stderr')")
    supervisor = Supervisor([spec], tmp_path, SystemClock())
    supervisor.start()
    assert _poll_until_ended(supervisor).status == 1
    log = tmp_path / "child.log"
    eventually(lambda: log.exists() and log.read_text().splitlines() == ["to stdout", "to stderr"])
    supervisor.stop(GRACE_MS)


def test_child_knows_its_parent_and_its_own_settings(tmp_path: Path, of_code: MakeSpec) -> None:
    code = f"import os; print(os.environ['{PARENT_VARIABLE}'], os.environ['OWN'], os.getsid(0) == os.getpid())"
    supervisor = Supervisor([of_code(code)], tmp_path, SystemClock())
    supervisor.start()
    eventually(lambda: (tmp_path / "child.log").exists() and (tmp_path / "child.log").read_text())
    assert (tmp_path / "child.log").read_text() == f"{os.getpid()} x True\n"
    supervisor.stop(GRACE_MS)


_ORPHAN = """
import sys, time
from pathlib import Path
from tistream_cli.processes.supervisor import ChildSpec, Supervisor
from tistream.clock import SystemClock
folder, *argv = sys.argv[1:]
imports = ("json",) if argv[1] == "-m" else ()
supervisor = Supervisor([ChildSpec("child", tuple(argv), {}, imports=imports)], Path(folder), SystemClock())
supervisor.start()
print(supervisor._children[0].process.pid, flush=True)
time.sleep(600)
"""

_ORPHANED = """
import time
from tistream.service.lifetime import die_with_parent
die_with_parent()
print('up', flush=True)
time.sleep(600)
"""


def test_children_die_with_a_supervisor_that_was_killed(tmp_path: Path, of_code: MakeSpec) -> None:
    command = [sys.executable, "-c", _ORPHAN, str(tmp_path), *of_code(_ORPHANED).argv]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    eventually(lambda: (tmp_path / "child.log").exists() and (tmp_path / "child.log").read_text())
    children = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    assert child in children
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: not any(map(_alive, children)))  # the fork server too


_WAITS = """
import sys
from pathlib import Path
from tistream.clock import SystemClock
from tistream_cli.processes.signal_wait import SignalWait
from tistream_cli.processes.supervisor import ChildSpec, Supervisor
folder, *argv = sys.argv[1:]
signals = SignalWait()
imports = ("json",) if argv[1] == "-m" else ()
supervisor = Supervisor([ChildSpec("child", tuple(argv), {}, imports=imports)], Path(folder), SystemClock())
supervisor.start()
while not (ended := supervisor.poll()):
    signals.wait(3600)
print(ended[0].status, flush=True)
supervisor.stop(0)
"""


def test_the_end_of_a_child_wakes_the_supervisor(tmp_path: Path, of_code: MakeSpec) -> None:
    command = [sys.executable, "-c", _WAITS, str(tmp_path), *of_code("import sys; sys.exit(3)").argv]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "3\n"


def test_the_supervisor_waits_no_longer_than_until_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()
    supervisor = Supervisor([_python("child", "pass")], tmp_path, clock)
    supervisor.start()
    assert supervisor.pause_ms() == LOOK_MS
    assert _poll_until_ended(supervisor).restart_in_ms == 0
    assert supervisor.pause_ms() == 0
    supervisor.poll()
    assert _poll_until_ended(supervisor).restart_in_ms == 200
    clock.advance(50)
    assert supervisor.pause_ms() == 150
    supervisor.stop(GRACE_MS)


_SHOWS = """
import os, sys, time
os.write(int(sys.argv[1]), b"through the descriptor")
print(open("/proc/self/cmdline").read().rstrip(chr(0)), os.getppid(), "json" in sys.modules, flush=True)
time.sleep(600)
"""


def test_a_fork_shows_its_own_command_and_has_the_descriptors_that_it_is_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shows.py").write_text(_SHOWS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    reader, writer = os.pipe()
    argv = (sys.executable, "-m", "shows", str(writer))
    supervisor = Supervisor([ChildSpec("child", argv, {}, (writer,), imports=("json",))], tmp_path, SystemClock())
    supervisor.start()
    os.close(writer)
    with os.fdopen(reader) as read:
        assert read.read(22) == "through the descriptor"
    log = tmp_path / "child.log"
    eventually(lambda: log.exists() and log.read_text().endswith("\n"))
    assert log.read_text() == f"{' '.join(argv)} {os.getpid()} True\n"
    supervisor.stop(GRACE_MS)


def test_children_are_started_though_the_fork_server_has_died_or_cannot_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counted.py").write_text("import sys; print('json' in sys.modules, flush=True)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    argv, log = (sys.executable, "-m", "counted", "child"), tmp_path / "child.log"

    def started(imports: str, before: Callable[[Supervisor], None] = lambda _: None) -> str:
        log.unlink(missing_ok=True)
        supervisor = Supervisor([ChildSpec("child", argv, {}, imports=(imports,))], tmp_path, SystemClock())
        supervisor.start()
        before(supervisor)
        eventually(lambda: log.exists() and log.read_text().endswith("\n"))
        supervisor.stop(GRACE_MS)
        return log.read_text()

    def again(supervisor: Supervisor) -> None:
        _poll_until_ended(supervisor)
        assert supervisor._forks is not None
        os.kill(supervisor._forks.pid, signal.SIGKILL)
        eventually(lambda: log.exists() and log.read_text().endswith("\n"))
        log.unlink()
        eventually(lambda: supervisor.poll() or log.exists())

    assert started("json") == "True\n"
    assert started("json", again) == "True\n"
    assert started("there_is_no_such_module") == "False\n"  # not forked


_DIES_BEFORE_THE_ANSWER = """
import os, socket
socket.socket.sendall = lambda *_: os._exit(9)
"""


def test_a_fork_of_which_the_supervisor_was_not_told_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would serve the same port as the process that is started in its place."""
    (tmp_path / "dies.py").write_text(_DIES_BEFORE_THE_ANSWER)
    (tmp_path / "says.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    argv, log = (sys.executable, "-m", "says"), tmp_path / "child.log"
    supervisor = Supervisor([ChildSpec("child", argv, {}, imports=("dies",))], tmp_path, SystemClock())
    supervisor.start()
    child = supervisor._children[0].process
    assert child is not None
    eventually(lambda: log.exists() and f"{child.pid}\n" in log.read_text())
    assert log.read_text() == f"{child.pid}\n"
    supervisor.stop(GRACE_MS)


@pytest.mark.parametrize(
    ("lives_ms", "waits_ms"),
    [
        ([100] * 7, [0, 200, 400, 800, 1600, 3200, 5000]),
        ([60_000, 60_000], [0, 0]),
        ([100, 100, 60_000, 100], [0, 200, 0, 200]),
    ],
)
def test_restarts_wait_longer_after_short_lives(lives_ms: list[int], waits_ms: list[int]) -> None:
    restarts, waits = Restarts(), []
    for lived_ms in lives_ms:
        restarts = restarts.after(lived_ms)
        waits.append(restarts.wait_ms)
    assert waits == waits_ms
    assert restarts.count == len(lives_ms)

"""A testbed comes and goes, and leaves nothing, whatever happens to it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dse.testbed import lifecycle, limits, machine, spec, state
from runtime.errors import CleaveError
from tests.cluster import OWN, Cluster, skip_unless_possible
from tests.command import Said, done, dse
from tests.dse.testbed import dying

pytestmark = pytest.mark.cluster

NAME = OWN + "l"
TWO = """\
one, cores=0, share=0.3, memory=100MB, bandwidth=100Mbit/s
two, cores=0, share=0.3, memory=100MB, bandwidth=1Gbit/s
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A spec of two hosts; whatever a test leaves of its testbed is taken down. Cores may sleep, others need them."""
    monkeypatch.setattr(machine, "virtual", lambda: False)
    file = tmp_path / "two.spec"
    file.write_text(TWO)
    skip_unless_possible(spec.read(file))
    yield file
    lifecycle.down(NAME)


def put_up(file: Path) -> Said:
    return dse("testbed", "up", "--spec", file, "--out", file.parent / "box", "--name", NAME)


def cluster(file: Path) -> Cluster:
    found = state.load(NAME)
    assert found is not None
    return Cluster(file.parent / "box", found)


def traces(folder: Path) -> list[str]:
    """All that there is of our testbed on this machine, and every mount where a host has one of its own."""
    groups = [str(group) for h in machine.mounted() for group in h.ours(NAME) if group.exists()]
    links = machine.tagged_links(f"{state.TAG} {NAME}")
    files = [str(path) for path in (state.ROOT / NAME, folder / "box") if path.exists()]
    drafts = [path.name for path in folder.iterdir() if path.name.startswith(".box")]
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    own = ("/proc", "/sys", "/run", "/dev/shm", "/tmp", "/etc/hosts", "/etc/passwd", str(state.ROOT))
    return groups + links + files + drafts + [mount for mount in mounts if mount in own]


def namespaces() -> dict[str, list[int]]:
    """Namespace → processes in it, of all processes of this machine."""
    found: dict[str, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/ns/*"):
        try:
            found.setdefault(os.readlink(entry), []).append(int(entry.parts[2]))
        except OSError:
            continue
    return found


def own_namespaces() -> set[str]:
    """Of the processes of our testbed alone. Looks several times: processes that come or go meanwhile hide theirs."""
    group = machine.mounted()[0].testbed(NAME)
    found = set[str]()
    for _ in range(5):
        before = set(machine.processes(group))
        there = namespaces()
        ours = before | set(machine.processes(group))
        assert ours
        found |= {name for name, pids in there.items() if set(pids) <= ours}
    return found


def test_what_comes_up_goes_down_with_everything_that_runs_on_it_twice_in_a_row(two: Path) -> None:
    before = traces(two.parent)
    for _ in range(2):
        assert put_up(two).code == 0
        hosts = cluster(two)
        hosts.said("one", "setsid nohup sleep 63 >/dev/null 2>&1 & mkdir -p deep/er; touch deep/er/file")
        with hosts.start("two", "sleep 64") as session:
            spaces, pids = own_namespaces(), {pid for host in hosts.hosts for pid in hosts.pids(host)}
            assert len(spaces) >= 2 * 5 + 1, "net, uts, ipc, mnt, pid of two hosts, and the switch"
            assert traces(two.parent) != before
            assert done("testbed", "down", "--name", NAME) == f"took down {NAME}\n"
            session.kill()  # nobody tells it that the host is gone, as when a plug is pulled
        assert traces(two.parent) == before
        assert not spaces & namespaces().keys()
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert done("testbed", "down", "--name", NAME) == f"nothing to take down: no testbed '{NAME}' is up\n"


def test_a_second_one_of_the_same_name_is_refused_and_the_first_stays(two: Path) -> None:
    assert put_up(two).code == 0
    again = dse("testbed", "up", "--spec", two, "--out", two.parent / "other", "--name", NAME)
    assert again.code == 2
    assert again.sentences == [
        f"testbed '{NAME}' is up already, its files in {two.parent / 'box'}; end it with "
        f"'dse testbed down --name {NAME}', or choose another --name"
    ]
    assert cluster(two).said("one", "hostname") == "one"


def awake() -> list[int]:
    """Processes that keep the cores of our testbed awake."""
    return [pid for hierarchy in machine.mounted() for pid in machine.processes(hierarchy.idle(NAME))]


def rested(core: int) -> float:
    """Seconds that a core has had nothing to do."""
    return psutil.cpu_times(percpu=True)[core].idle


def test_cores_of_a_virtual_machine_stay_awake_and_that_is_in_nobody_s_way(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hierarchy,) = (each for each in machine.mounted() if "cpu" in each.controllers)
    before = traces(two.parent)
    monkeypatch.setattr(machine, "virtual", lambda: True)
    assert put_up(two).code == 0
    if not (hierarchy.testbed(NAME) / limits.CPU_IDLE).exists():
        pytest.skip("this kernel knows no processes that give way to all others (Linux 5.15 and later do)")
    (pid,) = awake()
    limit = time.monotonic() + 60
    while os.sched_getaffinity(pid) != {0}:  # two hosts have the same core
        assert time.monotonic() < limit, "it does not begin, though it is given what nobody else needs"
        time.sleep(0.1)
    assert (hierarchy.idle(NAME).parent / limits.CPU_IDLE).read_text().strip() == "1"
    begin = rested(0)
    time.sleep(0.5)
    assert rested(0) - begin < 0.1
    assert done("testbed", "down", "--name", NAME) == f"took down {NAME}\n"
    assert (awake(), traces(two.parent)) == ([], before)


def test_cores_that_are_no_virtual_machine_s_may_sleep(two: Path) -> None:
    assert put_up(two).code == 0
    assert awake() == []


def test_a_dry_run_makes_nothing(two: Path) -> None:
    before = traces(two.parent)
    out = two.parent / "box"
    said = done("testbed", "up", "--spec", two, "--out", out, "--name", NAME, "--dry-run")
    assert said == f"dry run: nothing is missing; would put up one, two and write {out}\n"
    assert traces(two.parent) == before


def test_a_folder_with_something_in_it_is_refused_and_left_alone(two: Path) -> None:
    (two.parent / "box").mkdir()
    (two.parent / "box" / "mine").write_text("dear")
    assert put_up(two).sentences[0].startswith(f"{two.parent / 'box'}: exists already")
    assert state.load(NAME) is None
    assert (two.parent / "box" / "mine").read_text() == "dear"


def test_json_tells_where_everything_is(two: Path) -> None:
    words = ("testbed", "up", "--spec", two, "--out", two.parent / "box", "--name", NAME, "--json")
    body = json.loads(done(*words))
    assert [host["name"] for host in body["hosts"]] == ["one", "two"]
    assert all(host["answers"] for host in body["hosts"])
    assert all(Path(body[key]).is_file() for key in ("platform", "key", "known_hosts"))
    assert Path(body["key"]).stat().st_mode & 0o777 == 0o600
    (shown,) = (t for t in json.loads(done("testbed", "status", "--json"))["testbeds"] if t["name"] == NAME)
    assert shown["python"] == body["python"]


@pytest.mark.parametrize("step", [1, 9, 20])
def test_an_up_that_fails_half_way_says_why_and_leaves_nothing(
    two: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    before, run, steps = traces(two.parent), machine.run, iter(range(1, 1000))

    def failing(command: list[str]) -> str:
        if next(steps) == step + 1:  # the first asks which numbers are taken
            raise CleaveError(f"step {step} failed")
        return run(command)

    monkeypatch.setattr(machine, "run", failing)
    said = put_up(two)
    assert (said.code, said.sentences) == (2, [f"step {step} failed"])
    assert traces(two.parent) == before


def test_a_server_that_never_answers_is_told_with_its_last_words(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = traces(two.parent)
    monkeypatch.setattr("dse.testbed.host.sshd", lambda: "/nowhere/sshd")
    monkeypatch.setattr("dse.testbed.needs.programs", list)
    monkeypatch.setattr(machine, "PATIENCE_S", 0.5)
    said = put_up(two)
    assert said.sentences[0].startswith("the SSH server of 'one' does not answer: ")
    assert "/nowhere/sshd" in said.sentences[0]
    assert traces(two.parent) == before


@pytest.mark.slow
def test_after_an_up_that_was_killed_anywhere_down_removes_all(two: Path) -> None:
    before, out = traces(two.parent), two.parent / "box"
    changes = dying.up(two, out, NAME, before=0)
    assert changes
    lifecycle.down(NAME)
    for number in places(changes):
        assert dying.up(two, out, NAME, number) is None
        assert put_up(two).code == 2, "what is left stands in the way"
        assert done("testbed", "down", "--name", NAME) == f"took down {NAME}\n"
        assert traces(two.parent) == before, number


@pytest.mark.slow
def test_after_a_down_that_was_killed_anywhere_another_one_removes_the_rest(two: Path) -> None:
    before = traces(two.parent)
    assert put_up(two).code == 0
    changes = dying.down(NAME, before=0)
    assert changes
    for number in places(changes):
        assert put_up(two).code == 0
        assert dying.down(NAME, number) is None
        lifecycle.down(NAME)
        assert traces(two.parent) == before, number


def places(changes: int) -> range:
    """Some changes to die before, the first that leaves something among them; all would take minutes."""
    return range(5, changes + 1, int(os.environ.get("TESTBED_KILLS_EVERY", changes // 5)))


def test_testbeds_that_were_planned_at_the_same_time_do_not_share_a_network(two: Path) -> None:
    before, hosts = traces(two.parent), spec.read(str(two))
    plans = [lifecycle.plan(name, hosts, two.parent / name) for name in (NAME, OWN + "m")]
    assert plans[0].number == plans[1].number
    try:
        made = [lifecycle.up(planned) for planned in plans]
        assert made[0].number == plans[0].number != made[1].number
        assert made == [state.load(testbed.name) for testbed in made]
        assert all(host.answers for testbed in made for host in lifecycle.status(testbed))
    finally:
        assert [lifecycle.down(planned.name) for planned in plans] == [True, True]
    assert traces(two.parent) == before


def test_a_testbed_that_never_got_to_its_state_file_is_shown_and_removed(two: Path) -> None:
    before = traces(two.parent)
    (state.ROOT / NAME).mkdir(parents=True)
    hint = f"testbed '{NAME}' was never finished; remove it: dse testbed down --name {NAME}"
    assert hint in done("testbed", "status")
    done("testbed", "down", "--name", NAME)
    assert traces(two.parent) == before


def test_a_testbed_whose_files_somebody_has_deleted_is_found_by_its_control_groups(two: Path) -> None:
    before = traces(two.parent)
    assert put_up(two).code == 0
    shutil.rmtree(state.ROOT / NAME)
    shutil.rmtree(two.parent / "box")
    done("testbed", "down", "--name", NAME)
    assert traces(two.parent) == before


def test_a_host_whose_server_was_killed_is_silent_and_goes_down(two: Path) -> None:
    before = traces(two.parent)
    assert put_up(two).code == 0
    hosts = cluster(two)
    hosts.ssh("one", "kill -9 $(cat /var/lib/cleave-testbed/sshd.pid)")
    assert [host.answers for host in lifecycle.status(hosts.testbed)] == [False, True]
    done("testbed", "down", "--name", NAME)
    assert traces(two.parent) == before


def test_two_testbeds_stand_beside_one_another(two: Path, testbed: Cluster) -> None:
    assert put_up(two).code == 0
    assert cluster(two).testbed.number != testbed.testbed.number
    (two.parent / "box" / "mine").write_text("dear")
    done("testbed", "down", "--name", NAME)
    assert testbed.said("pi0", "hostname") == "pi0"
    assert [path.name for path in (two.parent / "box").iterdir()] == ["mine"], "what a user has put there stays"


def test_a_link_that_goes_by_itself_while_it_is_removed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([["gone0"], [], ["gone0"], ["gone0"]])
    monkeypatch.setattr(machine, "tagged_links", lambda tag: next(seen))
    machine.remove_links("tag")
    with pytest.raises(CleaveError, match="Cannot find device"):
        machine.remove_links("tag")

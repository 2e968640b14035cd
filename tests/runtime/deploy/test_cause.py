"""Why a run failed, from what guards, ranks and mpirun say."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.deploy.cause import Failure, ranks_on
from runtime.deploy.target import DeployError
from runtime.errors import CleaveError
from runtime.plan import Plan, RankPlan

HOSTS = ("pi0", "pi1", "pi1", "pi2")
"""Of ranks 0 to 3."""
ADDRESSES = {"pi0": "10.0.0.1", "pi1": "10.0.0.2", "pi2": "10.0.0.3"}
NO_WAY = """\
WARNING: Open MPI failed to TCP connect to a peer MPI process.  This
should not happen.

  Local host: pi1
  PID:        4242
  Message:    connect() to 10.0.0.3:1024 failed
  Error:      No route to host (113)
"""
RESET = "cleave: rank 0 of 4 on pi0_cpu0 failed (send x): Exception: MPI_ERR_OTHER: connection reset\n"


def plan() -> Plan:
    """Four ranks that do nothing."""
    ranks = [
        RankPlan(number, f"{host}_cpu0", host, ADDRESSES[host], (), 1, "CPUExecutionProvider", (), (), (), ())
        for number, host in enumerate(HOSTS)
    ]
    return Plan("cnn", (), (), tuple(ranks))


def failed(code: int | None = 1, stderr: str = "", disk: int = 10**9, **ended: list[object]) -> CleaveError:
    """ended: by rank, as ``rank2=[137, False]``"""
    seen: dict[str, Any] = {host: {"ranks": {}, "free disk": disk if host == "pi1" else 10**9} for host in ADDRESSES}
    for name, how in ended.items():
        seen[HOSTS[int(name[4:])]]["ranks"][name[4:]] = how
    done = {"code": code, "stdout": "", "stderr": stderr}
    return Failure(plan(), "pi0", done, seen, {"pi1": 95_000_000}, ADDRESSES, "mend it").error()


def sentences(*words: Any, **more: Any) -> dict[str, Any]:
    """By host, where it is known whose fault it is."""
    error = failed(*words, **more)
    assert isinstance(error, DeployError)
    return error.failures


def test_a_killed_rank_comes_before_all_that_follows_from_it() -> None:
    found = sentences(stderr=RESET + NO_WAY, rank2=[137, False])
    assert found == {"pi1": ["rank 2 was killed (SIGKILL) by somebody there, not for want of memory: run it again"]}


def test_the_kernels_kill_is_told_from_another() -> None:
    (sentence,) = sentences(stderr=RESET, rank1=[137, True])["pi1"]
    assert sentence.startswith(
        "rank 1 was killed by the kernel since memory ran out (95 MB were free before the run): "
    )


def test_whose_memory_ran_out_may_take_a_smaller_part() -> None:
    full = "cleave: rank 3 of 4 on pi2_cpu0 failed (opening x): MemoryError: bad_alloc\n"
    for how, hosts in (
        ({"rank1": [137, True]}, {"pi1"}),
        ({"rank1": [137, True], "rank2": [137, False]}, set()),
        ({"rank3": [137, False]}, set()),
        ({"stderr": full}, {"pi2"}),
        ({"stderr": full + RESET}, {"pi2"}),
        ({"stderr": RESET}, set()),
    ):
        error = failed(**how)  # type: ignore[arg-type]
        assert isinstance(error, DeployError)
        assert error.overloaded == hosts


def test_other_signals_have_their_name() -> None:
    assert sentences(rank3=[135, False]) == {"pi2": ["rank 3 was ended by SIGBUS: is there no room left in /dev/shm?"]}


def test_ranks_that_ended_well_or_with_a_word_of_their_own_were_not_killed() -> None:
    found = sentences(stderr=RESET, rank0=[1, False], rank1=[0, True])
    assert list(found) == ["pi0"]
    assert found["pi0"][0].startswith("rank 0 of 4 on pi0_cpu0 failed (send x)")


def test_hosts_that_do_not_reach_one_another_are_named() -> None:
    assert sentences(stderr=NO_WAY + NO_WAY) == {
        "pi1": [
            "its ranks get no connection to pi2 (No route to host): does a firewall stand between them? "
            "is interface= of the platform file right?"
        ]
    }


@pytest.mark.parametrize(
    ("line", "host", "sentence"),
    [
        (
            "cleave@10.0.0.2: Permission denied (publickey).",
            "pi1",
            "does not let pi0 in, which starts its ranks",
        ),
        (
            "ssh: connect to host 10.0.0.3 port 22: No route to host",
            "pi2",
            "does not let pi0 in, which starts its ranks",
        ),
        (
            "Host key verification failed.",
            "pi0",
            "may not start ranks on another host",
        ),
        (
            "cleave@10.0.0.21: Permission denied (publickey).",
            "pi0",
            "may not start ranks on another host",
        ),
    ],
)
def test_a_head_host_that_is_not_let_in(line: str, host: str, sentence: str) -> None:
    """It is the other host's fault, where it is known which."""
    assert sentences(stderr=f"{line}\n") == {host: [f"{sentence} ({line}): mend it"]}


def test_a_full_disk_where_nobody_could_say_so() -> None:
    assert sentences(disk=100) == {
        "pi1": ["its disk is full (ranks 1 and 2 ran there): make room, or choose another place with --work"]
    }


def test_what_mpirun_alone_has_seen() -> None:
    found = sentences(
        stderr="mpirun noticed that process rank 3 with PID 0 on node x exited on signal 11 (Segmentation"
    )
    assert found["pi2"][0].startswith("rank 3 was ended by SIGSEGV: ")


def test_if_nothing_is_known_the_end_of_the_output_is_shown() -> None:
    error = failed(code=213, stderr="one\ntwo\n")
    assert not isinstance(error, DeployError), "it is nobody's in particular"
    assert error.sentences == ("mpirun on pi0 ended with code 213", "one", "two")


def test_when_time_is_up_every_rank_is_there_and_those_that_say_nothing_come_first() -> None:
    found = sentences(code=None, stderr="cleave: rank 2 of 4 on pi1_cpu0 was not done (wait q)\n")
    assert list(found) == ["pi0", "pi1", "pi2"]
    assert found["pi1"][0].startswith("rank 1 did not say what it was doing: it was stopped, or in one long")
    assert found["pi1"][1] == "rank 2 of 4 on pi1_cpu0 was not done (wait q)"


@pytest.mark.parametrize(("host", "words"), [("pi0", "rank 0"), ("pi1", "ranks 1 and 2"), ("pi3", "no rank")])
def test_ranks_of_a_host(host: str, words: str) -> None:
    assert ranks_on(plan(), host) == f"{words} ran there"

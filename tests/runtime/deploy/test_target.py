"""What is done with all hosts at once."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from runtime.deploy.target import DeployError, HostError, Target, each, everywhere

HOSTS = [Target(name, name) for name in "abc"]

STOPPED = """\
import signal, time
from runtime.deploy.target import Target, each
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    each([Target("a", "a")], lambda target: time.sleep(60))
except KeyboardInterrupt:
    print("stopped")
"""


def work(target: Target) -> str:
    if target.name == "b":
        raise HostError("is off", "is far")
    time.sleep(0.05 if target.name == "a" else 0)
    return target.name.upper()


def test_what_came_of_each_host_is_told_in_their_order() -> None:
    answers, failures = each(HOSTS, work)
    assert list(answers.items()) == [("a", "A"), ("c", "C")]
    assert failures == {"b": ["is off", "is far"]}
    with pytest.raises(DeployError) as caught:
        everywhere(HOSTS, work)
    assert caught.value.sentences == ("b: is off", "b: is far")
    assert each([], work) == ({}, {})


def test_what_is_no_fault_of_a_host_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        each(HOSTS, lambda target: 1 // 0)


def test_a_program_that_is_stopped_does_not_wait_for_hosts() -> None:
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=True)
    assert done.stdout == "stopped\n"
    assert time.monotonic() - begin < 30

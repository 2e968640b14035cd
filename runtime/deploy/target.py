"""The hosts that a bundle goes to, and what to say when some of them cannot take it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

from runtime.errors import CleaveError

WORK = ".cleave"
"""Folder on a host that holds everything of ours; a relative one starts at the home folder."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Target:
    """One host of the cluster, as plain data.

    name:      as the plan calls it
    address:   host name or IP address to connect to
    user, port: to log in; None: what ``~/.ssh/config`` says, else SSH's own default
    key:       private key file for logging in; None: those of ``~/.ssh/config``, the agent and the usual files
    arch:      architecture that it should have; empty: any
    interface: network interface for messages between hosts; None: the one that leads to the other hosts
    work:      folder on the host for all that is put there; a relative one starts at the home folder
    python:    Python there, 3.8 or later; it starts everything, and runs the ranks unless ``work/venv`` was prepared
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    arch: str = ""
    interface: str | None = None
    work: str = WORK
    python: str = "python3"

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


class HostError(Exception):
    """What is wrong with one host, one sentence or more, each with what to do about it."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


class DeployError(CleaveError):
    """Some hosts failed: ``failures`` has the sentences of each, by its name. Nothing of theirs was switched.

    overloaded: those of them that may well take a smaller part: their memory or disk has no room for this one
    """

    def __init__(self, failures: dict[str, Sequence[str]], overloaded: Collection[str] = ()) -> None:
        super().__init__(*(f"{host}: {sentence}" for host, sentences in failures.items() for sentence in sentences))
        self.failures, self.overloaded = failures, frozenset(overloaded)


def each(targets: Sequence[Target], work: Callable[[Target], Answer]) -> tuple[dict[str, Answer], dict[str, list[str]]]:
    """Do something with all hosts at once: what came of it, and what went wrong, by the host's name.

    A command that is stopped meanwhile does not wait for hosts that give no answer.
    """
    answers: dict[str, Answer] = {}
    failures: dict[str, list[str]] = {}
    pending = [(target.name, _begin(work, target)) for target in targets]
    for name, future in pending:
        try:
            answers[name] = future.result()
        except HostError as error:
            failures[name] = list(error.sentences)
    return answers, failures


def _begin(work: Callable[[Target], Answer], target: Target) -> Future[Answer]:
    """Do it in a thread that the end of the program does not wait for, as it does for those of an executor."""
    future: Future[Answer] = Future()

    def do() -> None:
        try:
            future.set_result(work(target))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=do, daemon=True).start()
    return future


def everywhere(targets: Sequence[Target], work: Callable[[Target], Answer]) -> dict[str, Answer]:
    """Like ``each``; ``DeployError`` with every host that failed."""
    answers, failures = each(targets, work)
    if failures:
        raise DeployError(dict(failures))
    return answers

"""Run a generated program on its rank. Whatever goes wrong ends all ranks, with one line that says what and where."""

from __future__ import annotations

import signal
import sys

from runtime.communicator import PREFIX, Communicator
from runtime.errors import CleaveError
from runtime.loop import run_frames
from runtime.options import Options, parse
from runtime.rank import Place, Program, Rank, Shared


def main(program: Program, place: Place, arguments: list[str] | None = None) -> None:
    """Run a program as an MPI process, with the options of the command line."""
    from runtime.mpi import MpiCommunicator  # here, so that a program can be read and run where there is no MPI

    shared = Shared()

    def tell(*_: object) -> None:
        sys.stderr.write(f"{PREFIX}{_who(place)} was not done ({shared.activity})\n")
        sys.stderr.flush()

    signal.signal(signal.SIGUSR1, tell)  # when time is up
    execute(program, place, MpiCommunicator(), parse(sys.argv[1:] if arguments is None else arguments), shared)


def execute(
    program: Program, place: Place, communicator: Communicator, options: Options, shared: Shared | None = None
) -> None:
    """Run a program on any communicator."""
    rank = Rank(place, communicator, options, shared)
    try:
        _check(place, communicator)
        run_frames(program, rank, options)
    except Exception as error:
        communicator.abort(_sentence(place, rank.shared.activity, error))


def _check(place: Place, communicator: Communicator) -> None:
    if (communicator.rank, communicator.size) != (place.rank, place.ranks):
        here = f"rank {communicator.rank} of {communicator.size}"
        raise RuntimeError(f"MPI says {here}: start it with -n {place.ranks} and the mpirun that mpi4py belongs to")


def _sentence(place: Place, activity: str, error: Exception) -> str:
    """One line for a person."""
    reason = str(error).strip() or "no reason given"
    kind = "" if isinstance(error, CleaveError) else f"{type(error).__name__}: "
    sentence = f"{_who(place)} failed ({activity}): {kind}{reason}"
    return " ".join(sentence.split())


def _who(place: Place) -> str:
    return f"rank {place.rank} of {place.ranks} on {place.device}"

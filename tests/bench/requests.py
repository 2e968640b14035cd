"""One request at a time, by a clock of its own: what ``tests.bench.clock`` puts in the place of a bundle's ``main.py``.

The rank that holds the input fills it, looks at the time, does its part and waits until the rank that holds the output
tells it, past MPI, that the answer is there; then it looks again. Of the harness it uses what a program is written in
and what makes frames, but neither its loop nor its clocks, barriers or traces. With the options of ``main.py``; what it
found goes to the file of ``--report``: seconds of each request, and how long an answer takes to be told.
"""

import json
import os
import runpy
import socket
import sys
import time
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
TOLD, ECHOES, LATE_S = b"!", 50, 60.0


class Line:
    """Between the rank that asks and the rank that answers; the same rank may be both."""

    def __init__(self, world: Any, asks: bool, answers: bool) -> None:
        self.asks, self.answers = asks, answers
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(LATE_S)
        if asks:
            self._socket.bind(("0.0.0.0", 0))
        ports = world.allgather((self._socket.getsockname()[1], world.Get_rank()) if asks else None)
        port, rank = next(port for port in ports if port)
        with open(os.path.join(FOLDER, "plan.json")) as file:
            self._peer = json.load(file)["ranks"][rank]["address"].rpartition("@")[2], port

    def way_s(self) -> float:
        """How long a word takes from the one to the other: half of there and back, median."""
        if self.asks == self.answers:
            return 0.0
        found = []
        for _ in range(ECHOES):
            begin = time.time()
            if self.answers:
                self._socket.sendto(TOLD, self._peer)
                self._socket.recv(1)
            else:
                self._socket.sendto(*self._socket.recvfrom(1))
            found.append((time.time() - begin) / 2)
        return sorted(found)[ECHOES // 2]

    def tell(self) -> None:
        """The answer is there."""
        if self.answers and not self.asks:
            self._socket.sendto(TOLD, self._peer)

    def hear(self) -> None:
        """Wait until it is."""
        if self.asks and not self.answers:
            self._socket.recv(1)


def main() -> None:
    """Run as a rank."""
    sys.path.insert(0, FOLDER)
    from mpi4py import MPI

    from runtime.frames import Frames
    from runtime.mpi import MpiCommunicator
    from runtime.options import parse
    from runtime.rank import Rank

    world, options = MPI.COMM_WORLD, parse(sys.argv[1:])
    program = runpy.run_path(os.path.join(FOLDER, f"rank_{world.Get_rank():02d}.py"))
    rank = Rank(program["PLACE"], MpiCommunicator(), options)
    frame, frames, found = program["program"](rank), Frames(options, rank.inputs), []
    line = Line(world, bool(rank.inputs), bool(rank.outputs))
    way_s = line.way_s()
    world.Barrier()
    for index in range(-options.warmup, options.frames):
        frames.fill(index % options.frames, rank.inputs)
        rank.records.clear()
        begin = time.time()
        frame()
        line.tell()
        rank.finish()
        line.hear()
        found.append(time.time() - begin)
    every = world.gather((line.asks, line.answers, way_s, found[options.warmup :]))
    if every and options.report:
        requests_s = next(times for asks, _, _, times in every if asks)
        told_s = next(way for _, answers, way, _ in every if answers)
        with open(options.report, "w") as file:
            json.dump({"requests_s": requests_s, "told_s": told_s}, file)


if __name__ == "__main__":
    main()

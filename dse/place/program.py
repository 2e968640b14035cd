"""Mathematical programs in whole numbers, for two solvers: CP-SAT (OR-Tools) and HiGHS.

Coefficients are integers so that both work on the same numbers: whoever builds a program rounds times so that it is a
relaxation, and then the solver's bound holds for the real one.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.place.clock import now

LOOK_S = 0.3
"""So often it is looked whether time is over."""
GRACE_S = 60.0
"""Seconds besides twice the limit after which a solver that does not end is stopped."""

Term = tuple[int, int]
Whole = NDArray[np.int64]


@dataclass
class Program:
    """Minimise column 0, which is the first that is made. Columns and rows have bounds; None: there is none."""

    lo: list[int] = field(default_factory=list)
    hi: list[int] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    rows: list[tuple[list[Term], int | None, int | None]] = field(default_factory=list)

    def column(self, hi: int, chosen: bool = False) -> int:
        """A new column. chosen: it must be whole; others are when the chosen ones are."""
        self.lo.append(0)
        self.hi.append(hi)
        self.chosen.append(chosen)
        return len(self.lo) - 1

    def row(self, terms: Sequence[Term], lo: int | None = None, hi: int | None = None) -> None:
        """lo <= sum of column times coefficient <= hi."""
        self.rows.append(([term for term in terms if term[1]], lo, hi))


@dataclass(frozen=True)
class Solved:
    """columns: the best found, or None; bound: no solution is below it; done: it is the best that there is."""

    columns: Whole | None
    bound: int
    done: bool


def cp_sat(program: Program, limit: float, hint: Whole | None = None, work: float | None = None) -> Solved:
    """Solve with CP-SAT on two workers. limit: seconds; work: a limit that does not depend on the machine's speed."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [model.new_int_var(lo, hi, "") for lo, hi in zip(program.lo, program.hi, strict=True)]
    for terms, lo, hi in program.rows:
        total = sum(variables[c] * a for c, a in terms)
        model.add_linear_constraint(
            total, cp_model.INT_MIN if lo is None else lo, cp_model.INT_MAX if hi is None else hi
        )
    model.minimize(variables[0])
    if hint is not None:
        for variable, value in zip(variables, hint.tolist(), strict=True):
            model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 0
    solver.parameters.catch_sigint_signal = False
    solver.parameters.presolve_inclusion_work_limit = 0  # else 9.15 proves what is wrong: google/or-tools#5293
    if work is not None:
        solver.parameters.max_deterministic_time = work
        solver.parameters.interleave_search = True

    with ThreadPoolExecutor(1) as pool:  # beside it Ctrl-C is heard
        solving = pool.submit(solver.solve, model)
        try:
            status = _waited(solving, now() + 2 * limit + GRACE_S, solver.stop_search)
        finally:
            while not wait([solving], LOOK_S).done:  # a signal ends the command
                solver.stop_search()
    if status == cp_model.INFEASIBLE:
        return Solved(None, program.hi[0] + 1, True)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    columns = np.array([solver.value(v) for v in variables]) if found else None
    done = status == cp_model.OPTIMAL
    return Solved(columns, max(program.lo[0], math.ceil(solver.best_objective_bound - 0.5)), done)


def highs(program: Program, limit: float, hint: Whole | None = None) -> Solved:
    """Solve with HiGHS, in a process of its own: it cannot be loaded where CP-SAT is. limit: seconds"""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    given = pickle.dumps((program, limit, hint))
    child = subprocess.Popen(
        [sys.executable, "-m", "dse.place.highs"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    end, nothing = now() + 2 * limit + GRACE_S, Solved(None, program.lo[0], False)
    try:
        answer = _answer(child, given, end)
        return pickle.loads(answer) if answer is not None and child.returncode == 0 else nothing
    finally:
        child.kill()
        child.wait()


def _waited(solving: Future[Any], end: float, stop: Callable[[], None]) -> Any:
    """What comes of work that is stopped when time is over."""
    while not wait([solving], LOOK_S).done:
        if now() > end:
            stop()
    return solving.result()


def _answer(child: subprocess.Popen[bytes], given: bytes, end: float) -> bytes | None:
    """What a process says when it is done; None: time is over before."""
    asked: bytes | None = given
    while now() < end:
        with suppress(subprocess.TimeoutExpired):
            return child.communicate(asked, timeout=LOOK_S)[0]
        asked = None
    return None

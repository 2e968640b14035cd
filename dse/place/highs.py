"""HiGHS in a process of its own: a program comes in on standard input, the answer goes out; ``program.highs`` asks."""

from __future__ import annotations

import math
import os
import pickle
import sys
from typing import Any

import highspy
import numpy as np

from dse.place.program import Program, Solved, Whole


def solve(program: Program, limit: float, hint: Whole | None) -> Solved:
    """Solve with HiGHS. limit: seconds"""
    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", limit)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("threads", 2)
    solver.setOptionValue("random_seed", 0)
    solver.passModel(_matrix(program))
    if hint is not None:
        given = highspy.HighsSolution()
        given.col_value = hint.astype(float).tolist()
        solver.setSolution(given)
    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solved(None, program.hi[0] + 1, True)
    found = info.primal_solution_status == 2
    columns = np.rint(solver.getSolution().col_value).astype(np.int64) if found else None
    bound = info.mip_dual_bound if math.isfinite(info.mip_dual_bound) else program.lo[0]
    slack = 1e-5 * max(1.0, abs(bound))  # HiGHS calculates in floats: its rows hold to a tolerance
    return Solved(columns, max(program.lo[0], math.ceil(bound - slack)), status == highspy.HighsModelStatus.kOptimal)


def _matrix(program: Program) -> Any:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.lo), len(program.rows)
    model.col_cost_ = np.eye(1, len(program.lo))[0]
    model.col_lower_, model.col_upper_ = np.array(program.lo, float), np.array(program.hi, float)
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    model.integrality_ = [kinds[chosen] for chosen in program.chosen]
    model.row_lower_ = np.array([-math.inf if lo is None else lo for _, lo, _ in program.rows], float)
    model.row_upper_ = np.array([math.inf if hi is None else hi for _, _, hi in program.rows], float)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0] + [len(terms) for terms, _, _ in program.rows])
    model.a_matrix_.index_ = np.array([c for terms, _, _ in program.rows for c, _ in terms], np.int32)
    model.a_matrix_.value_ = np.array([a for terms, _, _ in program.rows for _, a in terms], float)
    return model


def main() -> None:
    """Answer a question. Nobody hears what HiGHS says on standard output, its name if nothing else (1.16)."""
    with os.fdopen(os.dup(1), "wb") as answer, open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        answer.write(pickle.dumps(solve(*pickle.load(sys.stdin.buffer))))


if __name__ == "__main__":
    main()

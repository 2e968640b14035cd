"""Start this on every rank:  mpirun -n 3 python main.py --frames 20 --barrier --report report.json"""

import os
import runpy
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))

if __name__ == "__main__":
    sys.path.insert(0, FOLDER)
    from mpi4py import MPI

    try:
        runpy.run_path(os.path.join(FOLDER, "rank_%02d.py" % MPI.COMM_WORLD.Get_rank()), run_name="__main__")
    except (Exception, KeyboardInterrupt) as error:
        rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
        reason = "%s: %s" % (type(error).__name__, " ".join(str(error).split()))
        sys.stderr.write("cleave: rank %d of %d failed (starting): %s\n" % (rank, size, reason))
        sys.stderr.flush()
        time.sleep(0.1)  # until mpirun has read it
        MPI.COMM_WORLD.Abort(1)

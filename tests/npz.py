"""Arrays in a file, as ranks write them."""

from __future__ import annotations

import numpy as np

from runtime.frames import save_stacks


def save_npz(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Like ``numpy.savez``, for every name that a tensor can have (``file`` too), and all or nothing."""
    known = {name: np.asanyarray(array) for name, array in arrays.items()}
    save_stacks(path, {name: (array.shape, array.dtype, [array]) for name, array in known.items()})

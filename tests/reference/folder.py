"""Where the data of others' programs is, which is no part of the project and may be absent."""

from __future__ import annotations

import os
from pathlib import Path


def reference(*parts: str) -> Path:
    """A path in the folder that ``DSE_REFERENCE`` names, else in ``shared/reference`` beside the project."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "reference"
    return Path(os.environ.get("DSE_REFERENCE", beside), *parts)

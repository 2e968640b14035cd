"""Where things are kept that can be made again. Workstation only."""

from __future__ import annotations

import os
from pathlib import Path


def cache(*names: str) -> Path:
    """A folder, or a folder in it, of ours in the user's cache: ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "cleave", *names)

"""Where the command begins: Ctrl-C while the libraries are still loading ends it without a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from dse.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

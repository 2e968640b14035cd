"""Where the command begins: Ctrl-C while the libraries are still loading ends it without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper


def main() -> None:
    """Load the command line and run it.

    A stream that was closed (``>&-``) swallows what it is given; letters that standard output has not, as in names of
    files where it is ASCII, are written by their numbers there, as Python does on the other one.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # libraries turn its exception into others, so that it must not come
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from dse.cli.main import main as run
    from dse.cli.progress import tell_compiling

    signal.signal(signal.SIGINT, interrupted)
    tell_compiling()
    run()


if __name__ == "__main__":
    main()

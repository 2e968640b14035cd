"""Leave a mark in the work folder for a moment, and say whose are there: hosts that see one another's share it."""

import contextlib
import os
import signal
import sys
from typing import Any, Dict

from runtime.deploy.far.common import answer, existing, inside, line


def start(request: Dict[str, Any]) -> None:
    """Leave it, look once all hosts have left theirs, take it away once all have looked; or when nobody asks any more.

    Where there is no work folder yet, it is left in the nearest above.
    """
    for number in (signal.SIGALRM, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    place = existing(request["work"])
    own = inside(place, request["mark"])
    try:
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        answer({})
        asked = line()
        if asked is not None:  # each by its name: what a folder lists may be some seconds old on a network disk
            answer({"seen": [mark for mark in asked["marks"] if os.path.lexists(inside(place, mark))]})
            line()
    finally:
        with contextlib.suppress(OSError):
            os.remove(own)
    answer({})

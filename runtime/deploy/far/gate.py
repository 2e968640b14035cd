"""The one thing that the key of a run may do on a host: start Open MPI's daemon of the host's own installation.

No shell sees what the other side sent. Its words become arguments of that daemon, or nothing.
"""

import json
import os
import re
import shlex
import sys
from typing import Dict, List


def main() -> None:
    """Become the daemon."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gate.json"), encoding="utf-8") as file:
        own = json.load(file)
    sent = shlex.split(os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    asked = sys.argv[1] if len(sys.argv) > 1 else sent[-1] if sent else ""
    found = re.search(r"(?:^|[\s;/])(prted|orted)\s", asked)
    if found is None:
        sys.exit("cleave: this key starts nothing but Open MPI's daemon")
    daemon = os.path.join(own["bin"], found.group(1))
    environment = dict(own["environment"], **own_prefix(asked[: found.start()], os.path.dirname(own["bin"])))
    words = shlex.split(asked[found.end() :])
    if asked.startswith("(") and words[-1:] == [")"]:  # so Open MPI 4.1 writes it for a login shell that is no bash
        words.pop()
    os.execve(daemon, [daemon, *own_words(words)], environment)


def own_prefix(before: str, prefix: str) -> Dict[str, str]:
    """Where the installation of this host is, in those variables that are set before the daemon."""
    places = {"OPAL_PREFIX": prefix, "PRTE_PREFIX": prefix, "PMIX_PREFIX": prefix, "LD_LIBRARY_PATH": prefix + "/lib"}
    return {name: place for name, place in places.items() if re.search(r"\b" + name + "=", before)}


def own_words(words: List[str]) -> List[str]:
    """The daemon starts no others, but wants to see a program that could; and it stays in sight of who asked for it."""
    before = ["", *words]
    changed = ["/bin/sh" if last.endswith("_agent") else word for last, word in zip(before, words)]
    return [word for word in changed if word != "--daemonize"]


main()

"""What mpirun on the head host starts a daemon on another host with: ssh, with the configuration of this run alone."""

import json
import os
import shlex
import sys


def main() -> None:
    """``agent HOST WORDS…`` becomes ssh."""
    own = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(own, "agent.json"), encoding="utf-8") as file:
        gates = json.load(file)
    host = sys.argv[1]
    command = "{} {}".format(gates[host], shlex.quote(" ".join(sys.argv[2:])))
    os.execvp("ssh", ["ssh", "-T", "-F", os.path.join(own, "ssh_config"), host, command])


main()

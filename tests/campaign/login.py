"""How a campaign gets to the hosts of a platform: by the options that ``dse`` has for it."""

from __future__ import annotations

import argparse
from pathlib import Path

from dse.cli.access import Running


def add_login(parser: argparse.ArgumentParser) -> None:
    """Let a campaign be asked how hosts are logged in to."""
    parser.add_argument("--key", type=Path)
    parser.add_argument("--known-hosts", type=Path, nargs="*", default=[])
    parser.add_argument("--python", default="python3")


def login(asked: argparse.Namespace) -> Running:
    """As it was asked."""
    return Running(known_hosts=asked.known_hosts, key=asked.key, python=asked.python)


def login_words(access: Running) -> list[object]:
    """What asks a command of ``dse`` for the same."""
    key = ["--key", access.key] if access.key else []
    return ["--python", access.python, *key, *(word for file in access.known_hosts for word in ("--known-hosts", file))]

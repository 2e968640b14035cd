"""A bundle where it runs, whoever has brought it there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from runtime.launch import Runner

HERE = ("localhost", "127.0.0.1", "::1")
"""Addresses of hosts that are this machine: bundles are run there without SSH."""


@dataclass(frozen=True)
class Ready:
    """A bundle that can be run.

    facts: of the host of its first rank, as text; by_host: of all hosts that were asked
    """

    runner: Runner
    facts: dict[str, str]
    by_host: dict[str, dict[str, str]] = field(default_factory=dict)


Place = Callable[[Path], AbstractContextManager[Ready]]
"""Brings a bundle to where it runs, for as long as the block lasts."""

"""Testbeds that stand nowhere, to look at what would be done."""

from __future__ import annotations

from dse.testbed.spec import HostSpec
from dse.testbed.state import Testbed

SLOW = HostSpec("slow", (0,), 0.1125, 500_000_000, 12.5e6)
FAST = HostSpec("fast", (0, 1), 1.5, 2_000_000_000, 125e6)
BOX = Testbed("box", 7, (SLOW, FAST), "/out", "/venv/bin/python", 1000, 1001)

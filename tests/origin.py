"""Where made-up coefficients come from, as if they had been measured."""

from __future__ import annotations

from model.cluster.origin import Origin

ORIGIN = Origin(
    date=("2023-01-01", "2023-01-02"),
    hosts=("a",),
    devices=("a_cpu0",),
    commands=("main.py",),
    samples="samples.jsonl",
    declared="generic",
)

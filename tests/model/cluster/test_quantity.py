"""Quantities: exact units, bits and bytes apart, and every refusal in its exact words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.quantity import LARGEST, UNITS, Dimension, parse, positive
from runtime.errors import CleaveError


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("1Gbit/s", "bandwidth", 125e6),
        ("100 Mbit/s", "bandwidth", 12.5e6),
        ("8kbit/s", "bandwidth", 1e3),
        ("4GB/s", "bandwidth", 4e9),
        ("0.5MB/s", "bandwidth", 5e5),
        ("2kB/s", "bandwidth", 2e3),
        ("7B", "size", 7),
        ("8GB", "size", 8_000_000_000),
        ("1.5kB", "size", 1500),
        ("3MB", "size", 3_000_000),
        ("1KiB", "size", 1024),
        ("1MiB", "size", 1024**2),
        ("8GiB", "size", 8 * 1024**3),
        ("2s", "time", 2),
        ("0.1ms", "time", 1e-4),
        ("3us", "time", 3e-6),
        ("0s", "time", 0),
        (" 10 W ", "power", 10),
        ("1500mW", "power", 1.5),
    ],
)
def test_value_is_exact(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "sentence"),
    [
        ("1Gb", "bandwidth", "'1Gb' has the ambiguous unit 'Gb': write Gbit/s for bits or GB/s for bytes"),
        ("1Gbps", "bandwidth", "'1Gbps' has the ambiguous unit 'Gbps': write Gbit/s for bits or GB/s for bytes"),
        ("9Kb/s", "bandwidth", "'9Kb/s' has the ambiguous unit 'Kb/s': write kbit/s for bits or kB/s for bytes"),
        ("8Gb", "size", "'8Gb' has the ambiguous unit 'Gb': write GB for bytes"),
        ("8gb", "size", "'8gb' has the unknown unit 'gb'; known: B, kB, MB, GB, KiB, MiB, GiB"),
        ("8KB", "size", "'8KB' has the unknown unit 'KB'; known: B, kB, MB, GB, KiB, MiB, GiB"),
        ("1e9B", "size", "'1e9B' has the unknown unit 'e9B'; known: B, kB, MB, GB, KiB, MiB, GiB"),
        ("1GB", "bandwidth", "'1GB' has the unknown unit 'GB'; known: kbit/s, Mbit/s, Gbit/s, kB/s, MB/s, GB/s"),
        ("5Mb", "time", "'5Mb' has the unknown unit 'Mb'; known: s, ms, us"),
        ("5", "time", "'5' has no unit; known: s, ms, us"),
        ("-5W", "power", "'-5W' is negative; write e.g. 10W"),
        ("W", "power", "'W' is not a number with a unit; write e.g. 10W"),
        ("", "power", "'' is not a number with a unit; write e.g. 10W"),
        ("nanW", "power", "'nanW' is not a number with a unit; write e.g. 10W"),
        (".5GB", "size", "'.5GB' is not a number with a unit; write e.g. 8GB"),
        ("٣GB", "size", "'٣GB' is not a number with a unit; write e.g. 8GB"),
        ("9999999999GB", "size", "'9999999999GB' is too large"),
    ],
)
def test_refusal(text: str, dimension: Dimension, sentence: str) -> None:
    with pytest.raises(CleaveError) as caught:
        parse(text, dimension)
    assert caught.value.sentences == (sentence,)


def test_positive_refuses_zero() -> None:
    assert positive("1us", "time") == 1e-6
    with pytest.raises(CleaveError, match=r"^'0\.0ms' must be more than zero$"):
        positive("0.0ms", "time")


@given(st.text() | st.from_regex(r"[0-9]+(\.[0-9]+)?[a-zA-Z/]*", fullmatch=True), st.sampled_from(list(UNITS)))
def test_any_text_is_a_finite_value_or_a_cleave_error(text: str, dimension: Dimension) -> None:
    try:
        value = parse(text, dimension)
    except CleaveError:
        return
    assert math.isfinite(value)
    assert 0 <= value <= LARGEST


@pytest.mark.parametrize("text", ["9" * 10**6 + "B", "0." + "0" * 10**6 + "1B"])
def test_endless_numbers_are_refused(text: str) -> None:
    with pytest.raises(CleaveError):
        parse(text, "size")

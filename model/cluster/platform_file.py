"""The text of a platform file: lines, fields and values, with everything that is wrong with them.

One host a line, fields separated by commas, comments from ``#``::

    nx01, arm, slots=0-5, gpu=NVIDIAVolta (CUDA), memory=8GB, bandwidth=1Gbit/s

The first field is the host, the second (optional) its architecture, all others are ``key=value`` in any order. A line
makes a CPU device of its cores (``slots``), a GPU device (``gpu``), or both, the CPU first; with neither it is a CPU
device of core 0. A host may stand on several lines with different cores: a CPU device each. ``name:address`` as the
first field is AutoDiCE's oldest form of ``address=``.

``docs/platform.md`` has all keys, and what is taken where one is not stated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv6Address
from math import ceil
from typing import TypeVar

from model.cluster import quantity
from runtime.errors import CleaveError
from runtime.meter import split

T = TypeVar("T")
D = TypeVar("D")
Fields = dict[str, tuple[int, str]]
"""Key → the number of the line that states it, counted from 1, and the value as written."""

ARCH = "architecture"
"""Key of the second field, which the file states without one."""
HOST_KEYS = (
    *("address", "memory", "bandwidth", "latency", "duplex", "medium", "copy_bandwidth"),
    *("idle_power", "meter", "interface", "user", "port"),
)
SLOWDOWN = {"cpu": "cpu_slowdown", "gpu": "gpu_slowdown"}
CPU_KEYS = ("slots", "threads", "cpu_power", SLOWDOWN["cpu"])
GPU_KEYS = ("gpu", "provider", "gpu_memory", "gpu_power", SLOWDOWN["gpu"])
KEYS = (*HOST_KEYS, *CPU_KEYS, *GPU_KEYS, "coefficients", "arena")
DUPLEX = ("half", "full")
PROVIDERS = {"CUDA": "CUDAExecutionProvider", "TensorRT": "TensorrtExecutionProvider"}


@dataclass(frozen=True)
class Line:
    """One line that is neither blank nor comment. number: from 1; host: its first field; fields: all others."""

    number: int
    host: str
    fields: Fields

    @property
    def units(self) -> tuple[str, ...]:
        """What kinds of devices it makes, in their order."""
        cpu = "slots" in self.fields or "gpu" not in self.fields
        return ("cpu",) * cpu + ("gpu",) * ("gpu" in self.fields)


class Sheet:
    """A platform file as written. Reading never stops at a mistake: ``problems`` holds (line, sentence) of each.

    keys:  the known ones; other files of hosts and fields have others (``dse.testbed.spec``)
    lines: all lines with content
    hosts: host → what its lines together state of it, in order of first appearance
    """

    def __init__(self, text: str, keys: tuple[str, ...] = KEYS) -> None:
        self.keys = keys
        self.problems: list[tuple[int, str]] = []
        self.lines: list[Line] = []
        self.hosts: dict[str, Fields] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            content = line.partition("#")[0].strip()
            if content:
                self._add(number, [field.strip() for field in content.split(",")])

    def value(self, fields: Fields, key: str, convert: Callable[[str], T], default: D) -> T | D:
        """The value of a key; ``default`` where it is not stated, empty or wrong."""
        number, text = fields.get(key, (0, ""))
        if not text:
            return default
        try:
            return convert(text)
        except CleaveError as error:
            self.problems += [(number, f"{key}: {sentence}") for sentence in error.sentences]
            return default

    def refuse(self, fields: Fields, keys: tuple[str, ...], why: str) -> None:
        """Complain of those ``keys`` that are stated though nothing can have them."""
        self.problems += [(fields[key][0], f"{key}: {why}") for key in keys if key in fields]

    def compare_media(self) -> None:
        """Complain of media that are not of one duplex, or are called as a host is."""
        first: dict[str, tuple[int, str]] = {}
        for fields in self.hosts.values():
            number, name = fields.get("medium", (0, ""))
            if name and name in self.hosts:
                self.problems.append((number, f"medium: {name!r} is a host; give the medium a name of its own"))
            line, duplex = fields.get("duplex", (number, "full"))
            if name and duplex in DUPLEX:
                other, stated = first.setdefault(name, (line, duplex))
                wrong = f"medium: {name!r} is {duplex} duplex here, but {stated} duplex on line {other}"
                if duplex != stated:
                    self.problems.append((line, f"{wrong}; state the same duplex= of all its hosts"))

    def refuse_numbers(self) -> None:
        """Complain of hosts that a number is the name of, and no other address is known of: Open MPI counts with it."""
        for line in {line.host: line for line in reversed(self.lines)}.values():
            if line.host.isdigit() and "address" not in self.hosts[line.host]:
                self.problems.append((line.number, f"host {line.host!r} is a number; state its address="))

    def _add(self, number: int, texts: list[str]) -> None:
        host, colon, address = (part.strip() for part in texts[0].partition(":"))
        fields: Fields = {}
        if colon:
            self._add_field(number, f"address={address}", fields)
        if len(texts) > 1 and texts[1] and "=" not in texts[1]:
            fields[ARCH] = (number, texts.pop(1))
        for text in texts[1:]:
            self._add_field(number, text, fields)
        if not host:
            self.problems.append((number, "no host; write e.g. nx01, arm, slots=0-5"))
        self.value({"host": (number, host)}, "host", word, None)
        self.lines.append(Line(number, host, fields))
        self._merge(host, fields)

    def _add_field(self, number: int, text: str, fields: Fields) -> None:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not text:
            wrong = "an empty field; commas stand between two fields only"
        elif not equals:
            hint = "; cores are written 0-5 or 0-2+4" if "slots" in fields and text.isdigit() else ""
            wrong = f"{text!r} is not key=value{hint}"
        elif key not in self.keys:
            wrong = f"unknown key {key!r} ({_meant(key, self.keys)})"
        elif key in fields:
            wrong = f"{key}: stated twice"
        else:
            fields[key] = (number, value)
            wrong = "" if value else f"{key}: no value"
        if wrong:
            self.problems.append((number, wrong))

    def _merge(self, host: str, fields: Fields) -> None:
        known = self.hosts.setdefault(host, {})
        for key in (key for key in (ARCH, *HOST_KEYS) if key in fields):
            number, text = fields[key]
            first, stated = known.setdefault(key, (number, text))
            if text != stated:
                wrong = f"{key}: {text!r}, but line {first} says {stated!r} of the same host"
                self.problems.append((number, wrong))


def _meant(key: str, keys: tuple[str, ...]) -> str:
    """The known key that looks most like ``key``, or all of them."""
    near = get_close_matches(key[:40], keys, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}"


def word(text: str) -> str:
    """A name of letters, digits, dots, dashes and underscores: safe in paths, commands and MPI's own files."""
    if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", text):
        rule = "only letters, digits, '.', '-' and '_', the first a letter, digit or '_'"
        raise CleaveError(f"{text!r} is not a name ({rule})")
    return text


def architecture(text: str) -> str:
    """A word that starts with a letter: cores without their key would pass as an architecture else."""
    if not text[:1].isalpha():
        raise CleaveError(f"{text!r} is not an architecture; write e.g. aarch64, and cores as slots=0-5")
    return word(text)


def address(text: str) -> str:
    """A host name, an IPv4 or an IPv6 address."""
    try:
        return str(IPv6Address(text)) if ":" in text and "%" not in text else _host_name(text)
    except ValueError:
        raise CleaveError(f"{text!r} is not an IPv6 address") from None


def _host_name(text: str) -> str:
    """A name that can be looked up; a dot may end it."""
    if not all(1 <= len(label) <= 63 for label in word(text).removesuffix(".").split(".")):
        raise CleaveError(f"{text!r} is not a host name (1 to 63 characters before, between and after its dots)")
    return text


def cores(text: str) -> tuple[int, ...]:
    """``0-2+4`` → ``(0, 1, 2, 4)``: rising, none twice."""
    found: set[int] = set()
    for part in text.split("+"):
        match = re.fullmatch("([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise CleaveError(f"{part.strip()!r} is not a core or a rising range; write e.g. 0-5 or 0-2+4")
        run = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not found.isdisjoint(run):
            raise CleaveError(f"{text!r} has a core twice")
        found.update(run)
    return tuple(sorted(found))


def count(text: str, largest: int) -> int:
    """A whole number from 1 to ``largest``."""
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= largest:
        raise CleaveError(f"{text!r} is not a whole number from 1 to {largest}")
    return int(text)


def times(text: str) -> float:
    """A plain decimal number, more than 0."""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", text) or not float(text):
        raise CleaveError(f"{text!r} is not how many times as long; write e.g. 1.15")
    return float(text)


def size(text: str) -> int:
    """Whole bytes, at least one."""
    return ceil(quantity.positive(text, "size"))


def switch(text: str, words: tuple[str, str] = ("on", "off")) -> bool:
    """Whether it is the first of two words."""
    if text not in words:
        raise CleaveError(f"{text!r} is neither {' nor '.join(words)}")
    return text == words[0]


def meter(text: str) -> str | None:
    """The name of a meter; None for ``none``."""
    if text != "none":
        split(text)
    return None if text == "none" else text


def provider(text: str) -> str:
    """An execution provider by ONNX Runtime's name for it."""
    if not re.fullmatch("[A-Za-z0-9]+ExecutionProvider", text):
        raise CleaveError(f"{text!r} is not an execution provider; write e.g. {PROVIDERS['CUDA']}")
    return text


def gpu_provider(text: str) -> str:
    """The execution provider that the name of a GPU implies: ``NVIDIAVolta (CUDA)``."""
    match = re.search(r"\(([^()]*)\)$", text)
    driver = match[1].strip() if match else ""
    if driver not in PROVIDERS:
        known = " or ".join(f"({name})" for name in PROVIDERS)
        raise CleaveError(f"{text!r} does not say what drives it; end it with {known}, or state provider=")
    return PROVIDERS[driver]

"""What the user of a testbed gets: platform file, key and known hosts, all text."""

from __future__ import annotations

from dse.testbed.network import INTERFACE
from dse.testbed.spec import HostSpec
from dse.testbed.state import PORT, USER, Testbed

PLATFORM, KEY, KNOWN_HOSTS, STATE = "platform.txt", "id_ed25519", "known_hosts", "testbed.json"
FILES = (PLATFORM, KEY, f"{KEY}.pub", KNOWN_HOSTS, STATE)
"""All that is in the user's folder; the last tells whose it is, and goes last."""


def platform(testbed: Testbed, architecture: str) -> str:
    """The platform file: one CPU device a host."""
    lines = [
        f"# The testbed '{testbed.name}': hosts on one machine, made by dse testbed up.",
        f"# Log in with {KEY} and {KNOWN_HOSTS} beside this file; Python on each host: {testbed.python}",
    ]
    return "\n".join(lines + [_line(testbed, host, architecture) for host in testbed.hosts]) + "\n"


def known_hosts(testbed: Testbed, host_keys: dict[str, str]) -> str:
    """Each host by name and by address. host_keys: host → public key, ``ssh-ed25519 AAAA…``."""
    return "".join(f"{host},{testbed.address(host)} {key}\n" for host, key in host_keys.items())


def bandwidth(bytes_per_s: float) -> str:
    """``125e6`` → ``1000Mbit/s``."""
    return f"{bytes_per_s / 125e3:.12g}Mbit/s"


def _line(testbed: Testbed, host: HostSpec, architecture: str) -> str:
    fields = {
        "address": testbed.address(host.name),
        "user": USER,
        "port": PORT,
        "interface": INTERFACE,
        "slots": "+".join(map(str, host.cores)),
        "memory": f"{host.memory_bytes}B",
        "bandwidth": bandwidth(host.bandwidth_bytes_per_s),
        "coefficients": "generic",
    }
    return ", ".join([host.name, architecture, *(f"{key}={value}" for key, value in fields.items())])

"""The network of a testbed, as commands: a switch, a cable from it to each host, and one to this machine.

The switch is a bridge in a network namespace of its own, so that no firewall rule of this machine sees what hosts say
to one another. A cable is a pair of veth interfaces, both ends made in the namespaces where they belong. What a host
sends is limited where it leaves the host, what it receives where it leaves the switch.
"""

from __future__ import annotations

from dse.testbed.spec import HostSpec
from dse.testbed.state import Testbed

Command = list[str]

INTERFACE = "eth0"
"""Of a host."""
BRIDGE = "bridge0"
TRUNK = "trunk"
"""The switch's end of the cable to this machine."""
QUEUE_MS = 20
"""A packet that would wait longer is dropped."""
BURST_S, BURST_BYTES = 1e-3, 32_768
"""What may leave at once: what the link carries in a millisecond, and at least some full packets."""


def switch(testbed: Testbed, switch_pid: int) -> list[Command]:
    """The bridge, and the cable to this machine; its end here carries the testbed's tag."""
    inside = within(switch_pid)
    return [
        [*inside, "ip", "link", "add", "name", BRIDGE, "type", "bridge"],
        [*inside, "ip", "link", "set", "dev", BRIDGE, "up"],
        ["ip", "link", "add", "name", testbed.link, "type", "veth", "peer", "name", TRUNK, "netns", str(switch_pid)],
        ["ip", "link", "set", "dev", testbed.link, "alias", testbed.tag],
        ["ip", "address", "add", f"{testbed.own_address}/24", "dev", testbed.link],
        ["ip", "link", "set", "dev", testbed.link, "up"],
        [*inside, "ip", "link", "set", "dev", TRUNK, "master", BRIDGE, "up"],
    ]


def host(testbed: Testbed, host: HostSpec, host_pid: int, switch_pid: int) -> list[Command]:
    """The cable of one host, limited in both directions."""
    there, inside = within(switch_pid), within(host_pid)
    end, limit = port(testbed, host.name), tbf(host.bandwidth_bytes_per_s)
    return [
        [*there, "ip", "link", "add", "name", end, "type", "veth", "peer", "name", INTERFACE, "netns", str(host_pid)],
        [*there, "tc", "qdisc", "add", "dev", end, "root", *limit],
        [*inside, "tc", "qdisc", "add", "dev", INTERFACE, "root", *limit],
        [*inside, "ip", "address", "add", f"{testbed.address(host.name)}/24", "dev", INTERFACE],
        [*inside, "ip", "link", "set", "dev", INTERFACE, "up"],
        [*there, "ip", "link", "set", "dev", end, "master", BRIDGE, "up"],
    ]


def port(testbed: Testbed, host: str) -> str:
    """The switch's end of a host's cable."""
    return f"port{testbed.address(host).rpartition('.')[2]}"


def cable(testbed: Testbed, host: str, switch_pid: int, plugged: bool) -> Command:
    """Pull the cable of a host out of the switch, or put it back."""
    state = "up" if plugged else "down"
    return [*within(switch_pid), "ip", "link", "set", "dev", port(testbed, host), state]


def within(pid: int) -> Command:
    """What to put before a command that is to run in the network namespace of a process."""
    return ["nsenter", "--target", str(pid), "--net", "--"]


def tbf(bytes_per_s: float) -> list[str]:
    """A queueing discipline that lets through no more than that."""
    burst = max(BURST_BYTES, int(bytes_per_s * BURST_S))
    return ["tbf", "rate", f"{bytes_per_s * 8:.0f}bit", "burst", f"{burst}b", "latency", f"{QUEUE_MS}ms"]

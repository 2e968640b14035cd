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
"""What a link that was held up may make up for: what it carries in a millisecond, and at least some packets."""
PEAK = 1.02
"""So much faster than its rate a link is meanwhile. Without it the first 0.1 MB of a message would take no time at all,
and one of 64 kB over 1 Gbit/s 0.1 ms instead of 0.5. With a quarter more, 0.6 MB went at that rate once nothing had
been sent for a millisecond: 0.2 MB took 1.39 ms over 1 Gbit/s instead of 1.68, and a network in many pieces a sixth
less than on a wire. As it is, 16 MB take no longer (132.95 ms both times)."""
PACKETS_S, PACKETS_BYTES = 128e-6, (4000, 16_000)
"""What a host hands to its link in one piece: what that carries in so long, within these bounds; else it is 64 kB."""


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
    piece = str(packets_bytes(host.bandwidth_bytes_per_s))
    return [
        [*there, "ip", "link", "add", "name", end, "type", "veth", "peer", "name", INTERFACE, "netns", str(host_pid)],
        [*there, "tc", "qdisc", "add", "dev", end, "root", *limit],
        [*inside, "tc", "qdisc", "add", "dev", INTERFACE, "root", *limit],
        [*inside, "ip", "address", "add", f"{testbed.address(host.name)}/24", "dev", INTERFACE],
        [*inside, "ip", "link", "set", "dev", INTERFACE, "gso_max_size", piece, "up"],
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
    burst, most = max(BURST_BYTES, int(bytes_per_s * BURST_S)), packets_bytes(bytes_per_s) + 1000  # and headers
    peak = ["peakrate", f"{PEAK * bytes_per_s * 8:.0f}bit", "mtu", str(most)]
    return ["tbf", "rate", f"{bytes_per_s * 8:.0f}bit", "burst", f"{burst}b", "latency", f"{QUEUE_MS}ms", *peak]


def packets_bytes(bytes_per_s: float) -> int:
    """The largest piece that a host hands to a link at once."""
    least, most = PACKETS_BYTES
    return min(max(int(bytes_per_s * PACKETS_S), least), most)

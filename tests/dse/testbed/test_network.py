"""The network as commands: limited in both directions, and nothing of this machine but one tagged interface."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from dse.testbed import network
from tests.dse.testbed.boxes import BOX, FAST, SLOW


@pytest.mark.parametrize(("host", "rate"), [(SLOW, "100000000bit"), (FAST, "1000000000bit")])
def test_both_ends_of_a_cable_are_limited(host: object, rate: str) -> None:
    commands = network.host(BOX, host, host_pid=11, switch_pid=22)  # type: ignore[arg-type]
    limited = {(c[2], c[c.index("dev") + 1]): c[c.index("rate") + 1] for c in commands if "tc" in c}
    assert limited == {("22", network.port(BOX, host.name)): rate, ("11", "eth0"): rate}  # type: ignore[attr-defined]


def test_a_link_is_limited_before_it_is_up() -> None:
    words = [" ".join(command) for command in network.host(BOX, SLOW, 11, 22)]
    assert max(i for i, w in enumerate(words) if " tbf " in w) < min(i for i, w in enumerate(words) if w.endswith("up"))


def test_only_the_way_in_is_made_outside_of_namespaces_and_it_is_tagged() -> None:
    outside = [command for command in network.switch(BOX, 22) if command[0] != "nsenter"]
    assert all("cleave7" in command for command in outside)
    assert ["ip", "link", "set", "dev", "cleave7", "alias", "cleave-testbed box"] in outside
    assert all(command[0] == "nsenter" for host in BOX.hosts for command in network.host(BOX, host, 11, 22))


def test_addresses_are_of_the_network_set_aside_for_tests() -> None:
    addresses = [BOX.address(host.name) for host in BOX.hosts] + [BOX.own_address]
    assert addresses == ["198.19.7.1", "198.19.7.2", "198.19.7.254"]
    assert all(ip_address(address) in ip_network("198.18.0.0/15") for address in addresses)


def test_what_leaves_at_once_grows_with_the_rate_but_holds_some_packets() -> None:
    def burst(rate: float) -> int:
        words = network.tbf(rate)
        return int(words[words.index("burst") + 1].removesuffix("b"))

    assert burst(125e6) == 125_000
    assert burst(1e5) == network.BURST_BYTES


@pytest.mark.parametrize(("rate", "piece"), [(125e6, 16_000), (50e6, 6400), (12.5e6, 4000)])
def test_a_host_hands_over_no_more_than_its_link_takes_in_one_piece(rate: float, piece: int) -> None:
    words = network.tbf(rate)
    assert network.packets_bytes(rate) == piece < int(words[words.index("mtu") + 1])
    assert words[words.index("peakrate") + 1] == f"{1.02 * rate * 8:.0f}bit"


def test_a_cable_is_pulled_at_the_switch() -> None:
    assert network.cable(BOX, "fast", 22, plugged=False)[-4:] == ["set", "dev", "port2", "down"]

"""Hosts that are reached another way than most: by IPv6, and at another port."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.testbed import machine, network
from dse.testbed.access import KNOWN_HOSTS
from runtime.deploy.network import names
from tests.cluster import Cluster, standing
from tests.command import done
from tests.runtime.deploy.conftest import make_bundle

TWO = """\
pi0, cores=0, share=0.9, memory=1GB, bandwidth=1Gbit/s
pi1, cores=1, share=0.9, memory=1GB, bandwidth=1Gbit/s
"""
PORT = 2222


def serve(cluster: Cluster, host: str, address: str) -> None:
    """Give a host an IPv6 address, with an SSH server of its own at ``PORT``."""
    pid = cluster.testbed.pid(host)
    assert pid is not None
    words = ["ip", "-6", "address", "add", f"{address}/64", "dev", network.INTERFACE, "nodad"]
    machine.run([*network.within(pid), *words])
    config = "-f /var/lib/cleave-testbed/sshd_config -o PidFile=none"
    cluster.said(host, f"$(command -v sshd || echo /usr/sbin/sshd) {config} -o 'ListenAddress=[::]:{PORT}'")


@pytest.mark.cluster
def test_hosts_with_ipv6_addresses_and_servers_at_other_ports_run_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "two.spec").write_text(TWO)
    with standing(tmp_path / "two.spec", tmp_path / "box", "v") as cluster, cluster.hurried():
        if not Path("/proc/sys/net/ipv6").exists():
            pytest.skip("this machine has no IPv6")
        prefix, text = f"fd5e:aa:{cluster.testbed.number + 1:x}:", cluster.platform.read_text()
        machine.run(["ip", "-6", "address", "add", f"{prefix}:fe/64", "dev", cluster.testbed.link, "nodad"])
        known = cluster.known_hosts.read_text()
        for number, host in enumerate(cluster.hosts, 1):
            old, new = cluster.testbed.address(host), f"{prefix}:{number}"
            serve(cluster, host, new)
            text = text.replace(f"address={old}, user=cleave, port=22,", f"address={new}, user=cleave, port={PORT},")
            known = known.replace(f"{host},{old} ", f"[{new}]:{PORT} ")
        (cluster.folder / "ipv6.txt").write_text(text)
        (cluster.folder / KNOWN_HOSTS).write_text(known)
        how = ["--platform", cluster.folder / "ipv6.txt", *cluster.options[2:]]
        said = done("bench", make_bundle(tmp_path, text), *how, "--frames", 2)
        (cluster.folder / "ipv6.txt").unlink()
    assert said.splitlines()[-1].endswith("gives the whole model's answer (3 frames, tolerance 0.0001)")


@pytest.mark.parametrize(("address", "known"), [
    ("pi1.lan", ["pi1.lan", "pi1"]), ("pi1", ["pi1"]), ("10.0.0.1", ["10.0.0.1"]), ("fd00::1", ["fd00::1"]),
])  # fmt: skip
def test_a_host_is_known_by_the_name_that_an_old_open_mpi_makes_of_its_address(address: str, known: list[str]) -> None:
    assert names(address) == known

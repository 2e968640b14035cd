"""What goes over the line, what is there afterwards, and what becomes of a line that breaks; on real SSH servers."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.deploy import ship as shipping
from runtime.deploy.cluster import cluster, refused
from runtime.deploy.connect import Talk, source
from runtime.deploy.keys import Trust
from runtime.deploy.parcel import File, Shipment, pack
from runtime.deploy.ship import Shipped, ship
from runtime.deploy.target import DeployError, HostError
from tests.command import files
from tests.runtime.deploy.conftest import make_bundle
from tests.runtime.deploy.sshd import Server


def packed(bundle: Path, sshds: list[Server]) -> Shipment:
    return pack(bundle, [server.target() for server in sshds])


def deploy(bundle: Path, sshds: list[Server]) -> dict[str, Shipped]:
    """Check and upload, as the command does."""
    shipment = packed(bundle, sshds)
    trust = Trust(tuple(server.known_hosts for server in sshds), {})
    with cluster(shipment, shipment.targets, None, trust) as hosts:
        refused(hosts.check())
        return hosts.upload()


def current(server: Server) -> Path:
    (folder,) = (server.work / "bundles").iterdir()
    return folder / "current"


def test_every_host_gets_what_its_rank_needs_and_nothing_else(bundle: Path, sshds: list[Server]) -> None:
    deploy(bundle, sshds)
    for number, server in enumerate(sshds):
        found = files(current(server))
        del found[".files.json"]
        own = [path for path in found if path.startswith("rank0") or path.startswith("rank_")]
        assert sorted(own) == [f"rank0{number}", f"rank0{number}/segment000.onnx", f"rank_0{number}.py"]
        assert {"plan.json", "main.py", "runtime/loop.py", "hostfile", "rankfile"} < set(found)
        assert not {"mapping.json", "bundle.json", "sender.json"} & set(found)
        for path, data in found.items():
            if (bundle / path).is_file():
                assert data == (bundle / path).read_bytes()


def test_only_the_owner_may_look_at_anything(bundle: Path, sshds: list[Server]) -> None:
    deploy(bundle, sshds)
    places = [sshds[0].work, *sshds[0].work.rglob("*")]
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in places if not p.is_symlink()}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_a_second_deploy_sends_nothing(bundle: Path, sshds: list[Server]) -> None:
    first = deploy(bundle, sshds)
    assert all(one.sent_bytes > 0 for one in first.values())
    second = deploy(bundle, sshds)
    assert [(one.sent, one.sent_bytes, one.changed) for one in second.values()] == [({}, 0, ())] * 3
    assert {one.release for one in second.values()} == {one.release for one in first.values()}


def test_a_changed_layer_sends_its_ranks_file_alone_and_the_last_version_is_kept(
    bundle: Path, sshds: list[Server], tmp_path: Path
) -> None:
    deploy(bundle, sshds)
    old = (current(sshds[2]) / "rank02/segment000.onnx").read_bytes()
    make_bundle(tmp_path, last=7)
    sent = deploy(bundle, sshds)
    assert [list(one.sent) for one in sent.values()] == [[], [], ["rank02/segment000.onnx"]]
    assert sent["c"].sent_bytes == (bundle / "rank02/segment000.onnx").stat().st_size
    root = current(sshds[2]).parent
    assert (root / "previous/rank02/segment000.onnx").read_bytes() == old
    assert (root / "current/rank02/segment000.onnx").read_bytes() != old
    for last in (8, 9):  # two more: the first is forgotten
        make_bundle(tmp_path, last=last)
        deploy(bundle, sshds)
    assert len(list((root / "releases").iterdir())) == 2
    back = make_bundle(tmp_path, last=8)  # the version before is there still
    assert deploy(back, sshds)["c"].sent == {}


def test_a_release_stays_while_a_run_uses_it(bundle: Path, sshds: list[Server], tmp_path: Path) -> None:
    used = Path(deploy(bundle, sshds)["c"].release)
    talk = sshds[2].connect().start("guard", run="1", environment={}, python="python3", mpirun="/usr/bin/mpirun",
                                    release=str(used), gate="", launch="")  # fmt: skip
    talk.hear()
    for last in (7, 8, 9):
        deploy(make_bundle(tmp_path, last=last), sshds)
    assert (used / "rank02/segment000.onnx").is_file()
    assert len(list(used.parent.iterdir())) == 3
    talk.say({"do": "end"})
    assert talk.hear() == {"ended": True}
    deploy(make_bundle(tmp_path, last=10), sshds)
    assert not used.exists()
    assert len(list(used.parent.iterdir())) == 2


def test_bundles_of_one_name_have_a_folder_each(sshds: list[Server], tmp_path: Path) -> None:
    """Whatever becomes of one, the other is current still, and nothing of it is sent again."""
    made = []
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        made.append(make_bundle(tmp_path / str(number), last=number))
    for each in (*made, *made):
        sent = deploy(each, sshds)
    assert len(list((sshds[2].work / "bundles").iterdir())) == 4
    assert [one.sent for one in sent.values()] == [{}] * 3
    assert sum(one.sent_bytes for one in deploy(made[0], sshds).values()) == 0


def test_a_broken_upload_goes_on_where_it_broke(
    bundle: Path, sshds: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipment = packed(bundle, sshds)
    parcel, server = shipment.parcels[1], sshds[1]
    whole, part = "rank01/segment000.onnx", 0

    def breaking(talk: Talk, path: Path, start: int) -> None:
        if str(path).endswith(whole):
            talk.send(path.read_bytes()[: 3 << 20])
            talk._channel.get_transport().close()
            raise HostError("the line broke")
        send(talk, path, start)

    send = shipping._send
    with monkeypatch.context() as patch:
        patch.setattr(shipping, "_send", breaking)
        with pytest.raises(HostError, match="the line broke"):
            ship(server.connect(), "bundles/bundle", parcel.files)
    assert not current(server).exists()
    incoming = server.work / "bundles/bundle/incoming"
    wait_until_unlocked(server)
    (partial,) = incoming.glob("*.part")
    part = partial.stat().st_size
    assert 0 < part <= 3 << 20
    done = ship(server.connect(), "bundles/bundle", parcel.files)
    size = (bundle / whole).stat().st_size
    assert done.sent[whole] == size - part
    assert done.resumed_bytes == part
    assert (current(server) / whole).read_bytes() == (bundle / whole).read_bytes()
    assert not incoming.exists()


def wait_until_unlocked(server: Server) -> None:
    """Until the script of a broken line has noticed."""
    lock = server.work / "bundles/bundle/lock"
    subprocess.run(["flock", "-w", "20", lock, "true"], check=True)


def test_a_part_that_is_not_how_the_file_begins_is_sent_anew(bundle: Path, sshds: list[Server]) -> None:
    shipment = packed(bundle, sshds)
    file = shipment.parcels[0].files["rank00/segment000.onnx"]
    incoming = sshds[0].work / "bundles/bundle/incoming"
    incoming.mkdir(parents=True)
    (incoming / f"{file.sha256}.part").write_bytes(b"something else")
    done = ship(sshds[0].connect(), "bundles/bundle", shipment.parcels[0].files)
    assert done.resumed_bytes == 0
    assert (current(sshds[0]) / "rank00/segment000.onnx").read_bytes() == file.path.read_bytes()


def test_a_part_however_large_takes_little_memory_to_compare(tmp_path: Path) -> None:
    size, path = 64 << 20, tmp_path / "file"
    with path.open("wb") as stream:
        stream.truncate(size + 1)
    hash_ = hashlib.sha256(bytes(size)).hexdigest()
    tracemalloc.start()
    try:
        assert shipping._start(File(path, "", size + 1), (size, hash_)) == size
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert shipping._start(File(path, "", size + 1), (size - 1, hash_)) == 0


@pytest.mark.parametrize("how", ["changed", "gone", "link"])
def test_a_tampered_file_on_the_far_side_is_found_and_replaced(how: str, bundle: Path, sshds: list[Server]) -> None:
    deploy(bundle, sshds)
    victim = current(sshds[1]) / "rank_01.py"
    good = victim.read_bytes()
    if how == "changed":  # with the old size and time
        before = victim.stat()
        victim.write_bytes(good.replace(b"import", b"IMPORT", 1))
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        victim.unlink()
        if how == "link":
            (sshds[1].home / "elsewhere").write_bytes(good)
            victim.symlink_to(sshds[1].home / "elsewhere")
    sent = deploy(bundle, sshds)
    assert sent["b"].changed == ("rank_01.py",)
    assert list(sent["b"].sent) == ["rank_01.py"]
    assert victim.read_bytes() == good
    assert not victim.is_symlink()


def test_a_file_that_changes_on_its_way_is_not_taken(
    bundle: Path, sshds: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipment = packed(bundle, sshds)
    send = Talk.send
    monkeypatch.setattr(Talk, "send", lambda talk, data: send(talk, data if data[:1] in b"[{" else data[::-1]))
    with pytest.raises(HostError, match="came over damaged"):
        ship(sshds[0].connect(), "bundles/bundle", shipment.parcels[0].files)
    assert not current(sshds[0]).exists()


@pytest.fixture
def small_disk(sshds: list[Server]) -> Iterator[Path]:
    """A disk of 3 MB as the work folder of the second host."""
    place = sshds[1].work
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", place]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)  # what served the host may not have ended yet


def test_a_disk_too_small_is_seen_before_anything_is_sent(bundle: Path, sshds: list[Server], small_disk: Path) -> None:
    with pytest.raises(DeployError, match=r"^b: has 3 MB of disk free at .*, needs 7\d MB: make room, or choose"):
        deploy(bundle, sshds)
    assert list(small_disk.iterdir()) == []
    assert not sshds[0].work.exists()


def test_a_disk_that_fills_up_leaves_the_version_before(bundle: Path, sshds: list[Server], small_disk: Path) -> None:
    shipment = packed(bundle, sshds)
    small = {p: f for p, f in shipment.parcels[1].files.items() if not p.endswith(".onnx")}
    before = ship(sshds[1].connect(), "bundles/bundle", small)
    with pytest.raises(HostError, match="its disk is full: make room, or choose another place with --work"):
        ship(sshds[1].connect(), "bundles/bundle", shipment.parcels[1].files)
    assert str(current(sshds[1]).resolve()) == before.release
    assert set(json.loads((current(sshds[1]) / ".files.json").read_text())) == set(small)


def test_a_second_deployment_at_the_same_time_is_refused(
    bundle: Path, sshds: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = source("lock").replace("PATIENCE_S = 15.0", "PATIENCE_S = 0.5")
    assert "PATIENCE_S = 0.5" in text
    monkeypatch.setattr("runtime.deploy.connect.source", lambda name: text if name == "lock" else source(name))
    shipment = packed(bundle, sshds)
    parcel = shipment.parcels[0]
    wanted = {path: (file.sha256, file.size_bytes) for path, file in parcel.files.items()}
    with sshds[0].connect().start("store", area="bundles/bundle", files=wanted) as talk:
        talk.hear()
        with pytest.raises(HostError, match="another deployment to it is under way"):
            ship(sshds[0].connect(), "bundles/bundle", parcel.files)


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", "a//b", "", "."])
def test_the_host_itself_refuses_paths_that_lead_out(path: str, sshds: list[Server], tmp_path: Path) -> None:
    file = next(iter(packed(make_bundle(tmp_path), sshds).parcels[0].files.values()))
    with pytest.raises(HostError, match="is no path inside a folder"):
        ship(sshds[0].connect(), "bundles/bundle", {path: file})
    with pytest.raises(HostError, match="is no path inside a folder"):
        ship(sshds[0].connect(), "../bundles", {"a": file})
    assert not (sshds[0].home / "out").exists()

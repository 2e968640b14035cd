"""What a calibration refuses before it measures: networks, a folder, and platform files that do not go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from codegen import folder
from dse.calibrate.command import SAMPLES
from dse.calibrate.fits import begun_with
from dse.calibrate.samples import Store
from dse.inputs import Cnn
from model.cluster.coefficients import load
from model.cluster.platform import Platform
from runtime.errors import CleaveError


def check_names(cnns: Sequence[Cnn]) -> None:
    """``CleaveError`` where two networks would be taken for one."""
    count = Counter(cnn.graph.name for cnn in cnns)
    if twice := [name for name, times in count.items() if times > 1]:
        raise CleaveError(*[f"--cnn: two networks are called '{name}'; give each once, by a name of its own"
                            for name in twice])  # fmt: skip


def check_networks(cnns: Sequence[Cnn], store: Store) -> None:
    """``CleaveError`` where something was measured of networks that are not given: coefficients are made of all."""
    if missing := sorted({run.network for run in store.runs} - {cnn.graph.name for cnn in cnns}):
        raise CleaveError(*[
            f"{store.path}: '{name}' was measured there, and is not given; name it with --cnn, too, or choose another "
            "folder with --out" for name in missing
        ])  # fmt: skip


def check_place(out: Path, platform: Path, check: bool) -> None:
    """``CleaveError`` where ``out`` cannot be the folder of a calibration. platform: the file that is given"""
    begun = (out / SAMPLES).is_file()
    if out.exists() and not out.is_dir():
        raise CleaveError(f"{out}: exists and is no folder; choose another place with --out")
    if not begun and any((out / mark).exists() for mark in folder.MARKS):
        raise CleaveError(f"{out}: holds a bundle or the results of a run; choose another place with --out")
    if check and not begun:
        raise CleaveError(f"{out}: no calibration was begun there, so there is nothing to check")
    if not begun and (out / platform.name).exists():
        raise CleaveError(f"{out / platform.name}: is there already, and would be replaced; choose another --out")


def check_coefficients(platform: Platform) -> None:
    """``CleaveError`` where a device has no set that what is not measured of it can be taken from."""
    for device in platform.devices:
        begun_with(device)


MEASURED_BY = ("meter", "interface")
"""Fields of hosts that say how they are measured."""


def check_measured_by(platform: Platform, store: Store) -> None:
    """``CleaveError`` where hosts say another thing of how they are measured than they did in a calibration that is
    gone on with: what was measured is not measured again. What new hosts say is kept.
    """
    now = {host.name: {name: getattr(host, name) for name in MEASURED_BY} for host in platform.hosts}
    before = store.hosts
    changed = [
        f"{host}: was measured with {_word(name, before[host].get(name))}, and the platform file has "
        f"{_word(name, value)}; correct it, or begin another calibration with --out"
        for host, how in now.items()
        if host in before
        for name, value in how.items()
        if value != before[host].get(name)
    ]
    if changed:
        raise CleaveError(*changed)
    if new := {host: how for host, how in now.items() if host not in before}:
        store.add_hosts(new)


def _word(name: str, value: str | None) -> str:
    """A field as a platform file has it."""
    return f"no {name}=" if value is None else f"{name}={value}"


def check_adjustable(calibrated: Path, check: bool) -> None:
    """``CleaveError`` where there is no calibrated platform file to adjust, or nothing is measured to adjust it to."""
    if not check:
        raise CleaveError("--adjust goes with --check, whose measurements it takes")
    if not calibrated.is_file():
        raise CleaveError(f"{calibrated}: is not there to be adjusted; --platform names the file that was calibrated")
    try:
        for device in Platform.from_file(calibrated).devices:
            load(device.coefficients)
    except CleaveError as error:
        what = "the same command without --check and --adjust writes it again, of what was measured"
        raise CleaveError(*error.sentences, what) from error

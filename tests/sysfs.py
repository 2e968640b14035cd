"""Trees as boards have them under /sys: INA3221 on a Jetson with JetPack 5, INA238, RAPL."""

from __future__ import annotations

import os
from pathlib import Path


def put(folder: Path, **files: object) -> Path:
    """Files of sysfs, each a line. Numbers of a meter are replaced in one go, as a driver would."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        draft = folder / f".{name}"
        draft.write_text(f"{content}\n")
        os.replace(draft, folder / name)
    return folder


def xavier(root: Path) -> Path:
    """Two INA3221 of a Xavier NX: one with its three rails, one with none in use. Returns the first one's folder."""
    drivers = root / "bus/i2c/drivers/ina3221"
    first = put(drivers / "7-0040/hwmon/hwmon4", name="ina3221", in7_label="Sum of shunt voltages", in7_input=2)
    rails = [("VDD_IN", 4920, 1000), ("VDD_CPU_GPU_CV", 4900, 312), ("VDD_SOC", 4896, 248)]
    for channel, (label, millivolts, milliamperes) in enumerate(rails, start=1):
        put(first, **{f"in{channel}_label": label, f"in{channel}_input": millivolts})
        put(first, **{f"curr{channel}_input": milliamperes, f"in{channel + 3}_input": 4})
    put(root / "bus/i2c/drivers/ina3221/7-0041/hwmon/hwmon5", name="ina3221")
    shown = root / "class/hwmon"
    shown.mkdir(parents=True)
    (shown / "hwmon4").symlink_to(first)
    put(shown / "hwmon0", name="thermal_fan_est", temp1_input=41000)
    return first


def ina238(root: Path) -> Path:
    """Two chips with one rail each: the first has a label of its own, the second none."""
    for number, label in enumerate(["VDD_GPU", ""]):
        chip = put(root / f"class/hwmon/hwmon{number}", name="ina238", in0_input=2, in1_input=12000, curr1_input=500)
        put(chip, power1_input=6100000, temp1_input=40000, **({"label": label} if label else {}))
    return root / "class/hwmon/hwmon0"


def rapl(root: Path) -> Path:
    """A package with two domains inside it, and the second way to the same package. Returns the package."""
    powercap = root / "class/powercap"
    for folder, name, energy in [
        ("intel-rapl:0", "package-0", 262_143_000_000),
        ("intel-rapl:0:0", "core", 1000),
        ("intel-rapl:0:1", "dram", 5000),
        ("intel-rapl-mmio:0", "package-0", 7),
    ]:
        put(powercap / folder, name=name, energy_uj=energy, max_energy_range_uj=262_143_328_850)
    put(powercap / "intel-rapl", enabled=1)
    return powercap / "intel-rapl:0"

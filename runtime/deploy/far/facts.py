"""What a host is and has. Runs on any Python from 3.6."""

import fcntl
import glob
import ipaddress
import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from runtime.deploy.far.common import answer, existing, venv_python
from runtime.deploy.far.cores import numbered

LOOK = """
import json, sys, platform
found = {"python": platform.python_version(), "executable": sys.executable}
for name in ("numpy", "mpi4py", "onnxruntime"):
    try:
        module = __import__(name)
        found[name] = module.__version__
    except Exception as error:
        found[name] = None
        found["why " + name] = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])
try:
    import onnxruntime
    found["providers"] = onnxruntime.get_available_providers()
except Exception:
    found["providers"] = []
try:
    import mpi4py
    mpi4py.rc.initialize = False  # its version is all that is asked, and starting it leaves files
    from mpi4py import MPI
    found["library"] = MPI.Get_library_version().strip("\\0").splitlines()[0]
except Exception as error:
    found["library"] = None
    found["why mpi4py"] = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])
print(json.dumps(found))
"""
"""Asked of the Python that runs the ranks."""
TEMPERATURES = "/sys/class/thermal/thermal_zone*/temp"


def start(request: Dict[str, Any]) -> None:
    """Answer with everything at once."""
    work = request["work"]
    python = venv_python(work, sys.executable)
    packages = look(python)
    mpirun = find_mpirun(python)
    answer(
        {
            "time": time.time(),
            "arch": platform.machine(),
            "base python": platform.python_version(),
            "python": python,
            "packages": packages,
            "mpirun": mpirun,
            "open mpi": version(mpirun),
            "ssh": shutil.which("ssh"),
            "cores": numbered(),
            "work": work,
            "free disk": free_disk(work),
            "writable": os.access(existing(work), os.W_OK),
            "free memory": free_memory(),
            "interfaces": interfaces(),
            "sources": {peer: source(peer) for peer in request["peers"]},
            "prepared": prepared(work),
            "hardware": hardware(),
        }
    )


def look(python: str) -> Dict[str, Any]:
    """Versions of the packages, from a process of their own."""
    try:
        with tempfile.TemporaryDirectory() as scratch:  # ONNX Runtime leaves files where it may
            done = subprocess.run(
                [python, "-c", LOOK],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=90,
                cwd=scratch,
                env=dict(os.environ, TMPDIR=scratch, XDG_CACHE_HOME=scratch),
            )
        found: Dict[str, Any] = json.loads(done.stdout.decode("utf-8").splitlines()[-1])
        return found
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        return {"why": f"{python} does not run: {error}"}


def find_mpirun(python: str) -> Optional[str]:
    """The one beside the Python, because mpi4py uses the MPI installed with it; else the one on the PATH."""
    beside = os.path.join(os.path.dirname(python), "mpirun")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpirun")


def version(mpirun: Optional[str]) -> Optional[str]:
    """``5.0.11``; what it says where that is no Open MPI."""
    if mpirun is None:
        return None
    try:
        done = subprocess.run([mpirun, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = done.stdout.decode("utf-8", "replace")
    found = re.search(r"Open ?MPI\)? v?([0-9][0-9.]*[0-9])", said)
    return found.group(1) if found else (said.splitlines() or ["nothing"])[0]


def hardware() -> Dict[str, str]:
    """What else a measurement depends on, as text, as far as the system tells."""
    clock = "/sys/devices/system/cpu/cpu0/cpufreq"
    files = {
        "board": "/proc/device-tree/model",
        "governor": os.path.join(clock, "scaling_governor"),
        "clock kHz": os.path.join(clock, "scaling_cur_freq"),
        "highest clock kHz": os.path.join(clock, "scaling_max_freq"),
    }
    found = {"processor": processor(), "processors": str(os.cpu_count()), "kernel": platform.release()}
    found["temperature mC"] = max((short(path) for path in glob.glob(TEMPERATURES)), key=number, default="")
    found.update((name, short(path)) for name, path in files.items())
    return {name: value for name, value in found.items() if value}


def processor() -> str:
    """As it calls itself; on ARM by the numbers of who made it and what."""
    said = dict(re.findall(r"(?m)^([^\t:]+?)\s*: *(.+)$", short("/proc/cpuinfo")))
    numbers = [said[name] for name in ("CPU implementer", "CPU part") if name in said]
    return str(said.get("model name") or " ".join(numbers) or platform.processor())


def short(path: str) -> str:
    """A small file as text; nothing where it cannot be read."""
    try:
        return text(path).strip("\0\n ")
    except (OSError, ValueError):
        return ""


def number(text: str) -> int:
    """0 for what is none."""
    return int(text) if text.isdigit() else 0


def free_disk(work: str) -> int:
    """Bytes that may still be written to the work folder."""
    found = os.statvfs(existing(work))
    return found.f_bavail * found.f_frsize


def free_memory() -> Optional[int]:
    """Bytes, the smaller of what the machine has left and what a control group leaves."""
    limits = []  # type: List[int]
    with open("/proc/meminfo", encoding="ascii") as file:
        limits += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    for names in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        for group in groups():
            try:
                most, used = (int(text(os.path.join(group, name))) for name in names)
                cache = re.search("^(?:total_)?inactive_file ([0-9]+)", text(os.path.join(group, "memory.stat")), re.M)
                limits.append(most - used + (int(cache.group(1)) if cache else 0))  # files that it need not keep
            except (OSError, ValueError):
                continue
    return min(limits) if limits else None


def text(path: str) -> str:
    """All of a small file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def groups() -> List[str]:
    """Folders of the control groups that this process is in, versions 1 and 2."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    return [f"/sys/fs/cgroup/{kinds}{path}" for _, kinds, path in lines if kinds in ("", "memory")]


def interfaces() -> Dict[str, Dict[str, str]]:
    """Name → address and network of each interface that has an IPv4 address."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:15])
            try:
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(line.fileno(), code, asked)[20:24]) for code in (0x8915, 0x891B)
                )
            except OSError:
                continue
            network = ipaddress.ip_interface(f"{address}/{mask}").network
            found[name] = {"address": address, "network": str(network)}
    return found


def source(peer: str) -> Optional[str]:
    """The address that this host has for another one."""
    try:
        kind, how, protocol, _, place = socket.getaddrinfo(peer, 22, 0, socket.SOCK_DGRAM)[0]
        with socket.socket(kind, how, protocol) as line:
            line.connect(place)
            return str(line.getsockname()[0])
    except OSError:
        return None


def prepared(work: str) -> Optional[str]:
    """What the environment was made of, where there is one."""
    try:
        with open(os.path.join(work, "venv", "cleave.txt"), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None

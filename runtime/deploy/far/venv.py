"""Make a virtual environment beside the one in use, then switch to it."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List

from runtime.deploy.far.common import FarError, answer, folder
from runtime.deploy.far.lock import alone

INDEX = ("--index-url", "--extra-index-url", "--find-links", "--trusted-host")
"""What a line of a file of requirements may say besides packages: where they come from."""


def start(request: Dict[str, Any]) -> None:
    """Packages and where from → an environment."""
    work = folder(request["work"])
    with alone(work, "another --prepare of it"):  # which goes on here, though its workstation was stopped
        answer({"done": ready(work, request["packages"], request["wheels"])})


def ready(work: str, packages: List[str], wheels: Any) -> str:
    """Have an environment, made unless it is there; what was done, in a word."""
    text = "\n".join([sys.version, *packages]) + "\n"
    name = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
    place, link = os.path.join(folder(work, "venvs"), name), os.path.join(work, "venv")
    if os.path.exists(os.path.join(place, "cleave.txt")) and os.path.realpath(link) == os.path.realpath(place):
        return "was prepared already"
    if os.path.lexists(link) and not os.path.islink(link):
        raise FarError(f"{link} is there and was not made by --prepare: move it away, or choose another --work")
    if not os.path.exists(os.path.join(place, "cleave.txt")):
        make(place, packages, wheels)
        with open(os.path.join(place, "cleave.txt"), "w", encoding="utf-8") as file:
            file.write(text)
    draft = link + ".new"
    if os.path.lexists(draft):
        os.remove(draft)
    os.symlink(os.path.join("venvs", name), draft)
    os.replace(draft, link)
    for other in os.listdir(os.path.join(work, "venvs")):
        if other != name:
            shutil.rmtree(os.path.join(work, "venvs", other), ignore_errors=True)
    return "prepared"


def make(place: str, packages: List[str], wheels: Any) -> None:
    """A new environment with these packages, among which may be where they come from, or nothing."""
    shutil.rmtree(place, ignore_errors=True)
    source = ["--no-index", "--find-links", wheels] if wheels else []
    source += [word for line in packages if line.startswith(INDEX) for word in line.split()]
    packages = [line for line in packages if not line.startswith(INDEX)]
    hint = "are the wheels for this host's Python and processor?" if wheels else "no index in reach? carry --wheels"
    pip = [os.path.join(place, "bin", "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    try:
        step([sys.executable, "-m", "venv", place], "it needs the package python3-venv: apt-get install python3-venv")
        step([*pip, "--no-input", "--only-binary", ":all:", *source, "--", *packages], hint)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def step(command: List[str], hint: str) -> None:
    """Run a command, or end with what it said was wrong."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    text = done.stdout.decode("utf-8", "replace")
    if os.strerror(errno.ENOSPC) in text:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    said = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("ERROR")] or said[-1:]
    why = errors[-1][:300] if errors else f"it ended with code {done.returncode}"
    raise FarError(f"{command[2]} failed there: {why} ({hint})")

"""What ``dse testbed`` says is to be typed, in a folder whose name has a blank."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dse.cli import testbed
from tests.dse.testbed.boxes import BOX

OUT = "/a folder/it's"


def test_options_are_words_of_a_shell() -> None:
    words = shlex.split(testbed.options(replace(BOX, out=OUT)))
    assert words[:4] == ["--platform", f"{OUT}/platform.txt", "--key", f"{OUT}/id_ed25519"]
    assert words[4:] == ["--known-hosts", f"{OUT}/known_hosts", "--python", BOX.python]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")
def test_ssh_understands_how_to_log_in(tmp_path: Path) -> None:
    out = tmp_path / "a folder"
    out.mkdir()
    (out / "id_ed25519").touch()
    program, *words = shlex.split(testbed.login(replace(BOX, out=str(out))))
    said = subprocess.run([program, "-G", *words], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"user cleave", "hostname 198.19.7.1", f"userknownhostsfile {out}/known_hosts"} < set(said)
    assert f"identityfile {out}/id_ed25519" in said

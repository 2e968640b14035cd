"""What runs on a board runs on Python 3.8."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.render import DEVICE_FILES
from tests.tiny import channels

VERMIN = [sys.executable, "-c", "from vermin import main; main()", "-t=3.8-", "--violations", "--no-eval-annotations"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return channels(tmp_path_factory.mktemp("device")).bundle


def test_every_python_file_of_a_bundle_is_python_3_8(bundle: Path) -> None:
    files = sorted(bundle.rglob("*.py"))
    assert len(files) == len(DEVICE_FILES) + 4
    for file in files:
        ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    done = subprocess.run([*VERMIN, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_check_would_see_what_is_newer(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("print('a'.removeprefix('b'))\n")
    done = subprocess.run([*VERMIN, str(tmp_path / "new.py")], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "removeprefix" in done.stdout


def test_what_is_evaluated_at_run_time_has_no_builtin_generics() -> None:
    """``X = list[int]`` outside an annotation fails before 3.9, and neither of the two above sees every one."""
    import runtime

    for name in DEVICE_FILES:
        tree = ast.parse((Path(runtime.__path__[0]) / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for field in ("annotation", "returns"):
                if hasattr(node, field):
                    setattr(node, field, None)
        bad = [
            f"{name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in {"list", "dict", "tuple", "set", "frozenset", "type"}
        ]
        assert bad == []

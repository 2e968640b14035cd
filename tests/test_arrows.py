"""Imports go one way: runtime <- model <- codegen <- dse, and between the parts of model; and a device needs little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.render import DEVICE_FILES

ROOT = Path(__file__).parent.parent
PACKAGES = ["runtime", "model", "codegen", "dse"]
PARTS = ["network", "cluster", "mappings", "cost", "fit", "simulator"]
ORDER = ["runtime", "model.compiled", *(f"model.{part}" for part in PARTS), "codegen", "dse"]
FILES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
DEVICE_NEEDS = {"numpy", "mpi4py", "onnxruntime"}
SLOW_TO_LOAD = {"matplotlib", "pymoo", "scipy.optimize", "scipy.sparse", "scipy.spatial", "ortools"}
"""A command loads them where it draws, searches, fits or solves: a second, for those that do none of it."""


def imported(source: str) -> set[str]:
    """Modules of all imports, those inside functions too; "." for a relative one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update("." if node.level else f"{node.module}.{alias.name}" for alias in node.names)
    return names


def place(module: str) -> int:
    """In the order; those of nobody here come first."""
    return max((k for k, name in enumerate(ORDER) if f"{module}.".startswith(f"{name}.")), default=-1)


def test_the_walk_sees_every_kind_of_import() -> None:
    source = "import a.b, c as d\nfrom e.f import g\ndef h():\n    if 1:\n        from i import j\nfrom . import k\n"
    assert imported(source) == {"a.b", "c", "e.f.g", "i.j", "."}


def test_there_are_files_to_look_at() -> None:
    assert {file.parent.name for file in FILES} >= {*PACKAGES, *PARTS}
    assert {path.parent.name for path in (ROOT / "model").glob("*/__init__.py")} == set(PARTS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_go_from_right_to_left_only(file: Path) -> None:
    own = place(".".join(file.relative_to(ROOT).with_suffix("").parts))
    names = imported(file.read_text())
    assert {name for name in names if place(name) > own or name.split(".")[0] in ("", "tests")} == set()


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_what_is_copied_to_a_device_needs_little(name: str) -> None:
    source = (ROOT / "runtime" / name).read_text()
    optional = {"PIL"} if name == "images.py" else set()
    tops = {module.split(".")[0] for module in imported(source)}
    assert tops <= {*sys.stdlib_module_names, *DEVICE_NEEDS, *optional, "runtime"}


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_what_is_copied_to_a_device_imports_only_what_is_copied_too(name: str) -> None:
    names = imported((ROOT / "runtime" / name).read_text())
    assert {f"{module.split('.')[1]}.py" for module in names if place(module) == 0} <= set(DEVICE_FILES)


def test_a_command_begins_without_what_is_slow_to_load() -> None:
    source = "import dse.cli.main, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "dse.run" in loaded.split()
    assert SLOW_TO_LOAD & set(loaded.split()) == set()

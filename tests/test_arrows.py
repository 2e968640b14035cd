"""Imports go one way: runtime <- model <- codegen <- dse; and a device needs little."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from codegen.render import DEVICE_FILES

ROOT = Path(__file__).parent.parent
PACKAGES = ["runtime", "model", "codegen", "dse"]
FILES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
DEVICE_NEEDS = {"numpy", "mpi4py", "onnxruntime"}


def imported(source: str) -> set[str]:
    """Top-level names of all imports, those inside functions too; "." for a relative one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else str(node.module).split(".")[0])
    return names


def test_the_walk_sees_every_kind_of_import() -> None:
    source = "import a.b, c as d\nfrom e.f import g\ndef h():\n    if 1:\n        from i import j\nfrom . import k\n"
    assert imported(source) == {"a", "c", "e", "i", "."}


def test_there_are_files_to_look_at() -> None:
    assert {file.parent.name for file in FILES} >= set(PACKAGES)
    assert len(FILES) > 30


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_go_from_right_to_left_only(file: Path) -> None:
    own = file.relative_to(ROOT).parts[0]
    later = PACKAGES[PACKAGES.index(own) + 1 :]
    assert imported(file.read_text()).isdisjoint({*later, ".", "tests"})


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_what_is_copied_to_a_device_needs_little(name: str) -> None:
    source = (ROOT / "runtime" / name).read_text()
    optional = {"PIL"} if name == "images.py" else set()
    assert imported(source) <= {*sys.stdlib_module_names, *DEVICE_NEEDS, *optional, "runtime"}


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_what_is_copied_to_a_device_imports_only_what_is_copied_too(name: str) -> None:
    tree = ast.parse((ROOT / "runtime" / name).read_text())
    modules = [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    own = {module.removeprefix("runtime.") + ".py" for module in modules if module.startswith("runtime.")}
    assert own <= set(DEVICE_FILES)


def test_a_device_loads_nothing_with_the_package_itself() -> None:
    assert (ROOT / "runtime" / "__init__.py").read_text() == ""

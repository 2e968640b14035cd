"""The text of a bundle in C++."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.render import CPP, RUNTIME, _cpp, render
from runtime.errors import CleaveError
from runtime.plan import Buffer, Part, Plan, Run, Send
from tests.codegen.test_render import NASTY
from tests.tiny import channels, rank, rows
from tests.tiny_cnn import examples

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("name", ["rank_00.cpp", "rank_01.cpp", "rank_02.cpp", "main.cpp"])
def test_programs_of_shared_channels(name: str, golden: Golden, tmp_path: Path) -> None:
    golden(f"channels_{name}", render(channels(tmp_path).plan, CPP)[name])


def test_a_program_that_sends_rows(golden: Golden, tmp_path: Path) -> None:
    golden("rows_rank_00.cpp", render(rows(tmp_path).plan, CPP)["rank_00.cpp"])


def test_all_files(tmp_path: Path) -> None:
    """What is there besides the programs is there for Python too, and the same."""
    plan = channels(tmp_path).plan
    files, python = render(plan, CPP), render(plan)
    own = {f"native/{file.name}" for file in (RUNTIME / "native").iterdir()}
    assert {path for path in files if path not in python} == {
        "main.cpp",
        *(f"rank_{i:02d}.cpp" for i in range(3)),
        *own,
    }
    assert all(files[path] == python[path] for path in files if path in python)
    assert not any(path.endswith(".py") for path in files)
    assert all(text.isascii() for path, text in files.items() if path.endswith((".cpp", ".hpp")))


def test_the_command_that_main_names_is_the_one_that_is_used(tmp_path: Path) -> None:
    from runtime.compiling import COMPILE, LINK

    text = render(channels(tmp_path).plan, CPP)["main.cpp"]
    assert f"mpicxx {' '.join(COMPILE)} -o ranks *.cpp native/*.cpp {' '.join(LINK)}\n" in text


def spoken(literal: str) -> str:
    """What a literal says to a C++ compiler."""
    assert re.fullmatch(r'"([ -!#->@-\[\]-~]|\\[0-7]{3})*"', literal), literal
    return re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), literal[1:-1].encode()).decode()


@examples(200)
@given(st.text())
def test_any_text_is_a_literal_that_says_it(text: str) -> None:
    assert spoken(_cpp(text)) == text


@pytest.mark.parametrize("name", [name for name in NASTY if "\0" not in name])
def test_no_name_becomes_code(name: str) -> None:
    """Every name arrives as it is, on lines that are otherwise those of any other name."""
    x, y = Buffer(name, (1, 4), "float32"), Buffer(name + "y", (1, 4), "float32")
    run = Run(name + ".onnx", (Part(name, 1, 0, 4),), (x.name,), (y.name,))
    first = rank(0, [x, y], [run, Send(y.name, 1, 0, ((0, 1), (1, 3)))], inputs=(name,), outputs=(y.name,), device=name)
    text = render(Plan(name, (x,), (y,), (first, rank(1, [], []))), CPP)["rank_00.cpp"]
    code = [re.sub(r"//.*", "", re.sub(r'"[^"\n]*"', "T", line)).rstrip() for line in text.split("\n")]
    words = [word for line in text.split("\n") if line[:2] != "//" for word in re.findall(r'"[^"\n]*"', line)]
    said = [spoken(word) for word in words]
    assert said.count(name) == 2  # buffer, device
    assert {name + "y", name + ".onnx"} <= set(said)
    assert "    Buffer& b0 = rank.buffer(T, {1, 4}, T);" in code
    assert "        s0.run();" in code
    assert text.isascii()
    assert not any(line.endswith("\\") for line in text.split("\n"))  # which would make the next one a comment


def test_what_cpp_cannot_do_is_refused() -> None:
    b = Buffer("a\0b", (1,), "float32")
    with pytest.raises(CleaveError, match="a zero byte in its name"):
        render(Plan("c", (), (), (rank(0, [b], []),)), CPP)
    plan = Plan("c", (), (), (rank(0, [], [], provider="CUDAExecutionProvider"), rank(1, [], [])))
    with pytest.raises(CleaveError, match=r"^edge00_cpu01: a program in C\+\+ computes on processors, not by CUDA"):
        render(plan, CPP)
    assert "main.py" in render(plan)


def test_the_arena_is_as_the_plan_says(tmp_path: Path) -> None:
    plan = channels(tmp_path).plan
    off = replace(plan, ranks=tuple(replace(r, arena=False) for r in plan.ranks))
    assert "/* arena */ true," in render(plan, CPP)["rank_01.cpp"]
    assert "/* arena */ false," in render(off, CPP)["rank_01.cpp"]

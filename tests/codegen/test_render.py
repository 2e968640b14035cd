"""The text of a bundle."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime
from codegen.render import DEVICE_FILES, render, write
from runtime.errors import CleaveError
from runtime.plan import Buffer, Part, Plan, Run, Send
from tests.tiny import channels, rank, rows

NASTY = [
    "plain",
    'quote"s',
    "it's",
    "\"\"\"'''",
    "back\\slash\\",
    "line\nbreak\r\u2028",
    "{{ 7 * 7 }}{% raw %}",
    "# comment",
    "\N{GREEK SMALL LETTER ALPHA}\U0001f600",
    "\x00\x7f",
    "'); import os; os.abort(); ('",
    "",
]


def program(plan: Plan, number: int) -> ast.Module:
    return ast.parse(render(plan)[f"rank_{number:02d}.py"])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_program_of_shared_channels(number: int, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    golden(f"channels_rank_{number:02d}.py", render(channels(tmp_path).plan)[f"rank_{number:02d}.py"])


def test_a_program_that_sends_rows(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    golden("rows_rank_00.py", render(rows(tmp_path).plan)["rank_00.py"])


@pytest.mark.parametrize("name", ["main.py", "rankfile", "hostfile", "sender.json", "receiver.json"])
def test_what_starts_and_describes_the_programs(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    golden(f"channels_{name}", render(channels(tmp_path).plan)[name])


def test_all_files(tmp_path: Path) -> None:
    files = render(channels(tmp_path).plan)
    named = {"plan.json", "main.py", "rankfile", "hostfile", "sender.json", "receiver.json"}
    assert set(files) == named | {f"rank_{i:02d}.py" for i in range(3)} | {f"runtime/{n}" for n in DEVICE_FILES}
    assert files["runtime/__init__.py"] == ""
    for name in DEVICE_FILES:
        assert files[f"runtime/{name}"] == (Path(runtime.__path__[0]) / name).read_text(encoding="utf-8")


def test_the_same_plan_gives_the_same_text_and_the_plan_itself(tmp_path: Path) -> None:
    plan = channels(tmp_path).plan
    files = render(plan)
    assert files == render(Plan.from_json(files["plan.json"]))
    assert Plan.from_json(files["plan.json"]) == plan


def test_write_only_writes(tmp_path: Path) -> None:
    write({"a/b.txt": "\N{GREEK SMALL LETTER ALPHA}\n", "c": ""}, tmp_path)
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"\xce\xb1\n"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b.txt", "c"]


@pytest.mark.parametrize("name", NASTY)
def test_no_name_becomes_code(name: str) -> None:
    """Every name arrives as it is, in a program with as many statements as for any other name."""
    x, y = Buffer(name, (1, 4), "float32"), Buffer(name + "y", (1, 4), "float32")
    run = Run(name + ".onnx", (Part(name, 1, 0, 4),), (x.name,), (y.name,))
    steps = [run, Send(y.name, 1, 0, ((0, 1), (1, 3)))]
    first = rank(0, [x, y], steps, inputs=(name,), outputs=(y.name,), device=name, provider=name)
    plan = Plan(name, (x,), (y,), (first, rank(1, [], [])))
    tree = program(plan, 0)
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    assert len(list(ast.walk(tree))) == len(list(ast.walk(program(_renamed(plan), 0))))
    assert texts.count(name) == 5  # device, provider, buffer, input of the rank, input of the segment
    assert name + ".onnx" in texts
    assert texts.count(name + "y") == 3
    assert render(plan)["rank_00.py"].isascii()


def _renamed(plan: Plan) -> Plan:
    x, y = Buffer("x", (1, 4), "float32"), Buffer("y", (1, 4), "float32")
    steps = [Run("s.onnx", (Part("l", 1, 0, 4),), ("x",), ("y",)), Send("y", 1, 0, ((0, 1), (1, 3)))]
    return replace(plan, cnn="c", ranks=(rank(0, [x, y], steps, inputs=("x",), outputs=("y",)), plan.ranks[1]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(), st.text(), st.text())
def test_any_name_stays_a_name(name: str, device: str, layer: str) -> None:
    x, y = Buffer(name, (1, 4), "float32"), Buffer(name + "y", (1, 4), "float32")
    parts = tuple(Part(layer, 1, i, i + 1) for i in range(4))
    first = rank(0, [x, y], [Run("s.onnx", parts, (x.name,), (y.name,))], inputs=(name,), device=device)
    text = render(Plan(layer, (x,), (y,), (first,)))["rank_00.py"]
    assert text.isascii()
    assert device in {n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)}
    assert ast.dump(ast.parse(text)).count("Call(") == 7  # Place, buffer twice, input, segment, run, main


def test_many_layers_are_told_by_their_ends() -> None:
    parts = tuple(Part(f"l{i}", 1, 0, 4) for i in range(9))
    b = Buffer("x", (1, 4), "float32")
    text = render(Plan("c", (), (), (rank(0, [b], [Run("s.onnx", parts, ("x",), ("x",))]),)))["rank_00.py"]
    assert "s0.run()  # l0[:,0:4] ... l8[:,0:4] (9 layers)\n" in text


@pytest.mark.parametrize(
    ("shape", "box", "text"),
    [
        ((1, 4, 5, 5), ((0, 1), (0, 4), (0, 5), (0, 5)), "b0"),
        ((1, 4, 5, 5), ((0, 1), (1, 4), (0, 5), (0, 5)), "b0[0:1, 1:4]"),
        ((1, 4, 5, 5), ((0, 1), (0, 4), (0, 5), (2, 5)), "b0[0:1, 0:4, 0:5, 2:5]"),
        ((2, 4), ((1, 2), (0, 4)), "b0[1:2]"),
        ((), (), "b0"),
    ],
)
def test_boxes(shape: tuple[int, ...], box: tuple[tuple[int, int], ...], text: str) -> None:
    plan = Plan("c", (), (), (rank(0, [Buffer("x", shape, "float32")], [Send("x", 1, 0, box)]), rank(1, [], [])))
    assert f"rank.send({text}, dest=1, tag=0)" in render(plan)["rank_00.py"]


def test_receives_are_posted_before_everything_else(tmp_path: Path) -> None:
    text = render(channels(tmp_path).plan)["rank_01.py"]
    lines = [line.split("#")[0].strip() for line in text[text.index("def frame") :].splitlines()[1:7]]
    assert lines == ["r0.post()", "r1.post()", "r0.wait()", "s0.run()", "r1.wait()", "s1.run()"]


def test_a_rank_with_nothing_to_do_is_still_a_program() -> None:
    plan = Plan("c", (), (), (rank(0, [], []),))
    names: dict = {}
    exec(compile(program(plan, 0), "rank_00.py", "exec"), {"__file__": "rank_00.py", "__name__": "rank_00"}, names)
    assert names["program"](None)() is None


def test_hosts_with_several_ranks_and_more_than_a_hundred_ranks() -> None:
    ranks = tuple(rank(i, [], [], host=f"h{i % 2}", address=f"10.0.0.{i % 2}", cores=(i, i + 1)) for i in range(102))
    files = render(Plan("c", (), (), ranks))
    assert files["hostfile"] == "10.0.0.0 slots=51\n10.0.0.1 slots=51\n"
    assert files["rankfile"].splitlines()[101] == "rank 101=10.0.0.1 slots=101,102"
    assert "rank_101.py" in files


def test_messages_in_autodice_form(tmp_path: Path) -> None:
    files = render(rows(tmp_path).plan)
    assert json.loads(files["sender.json"]) == {
        "edge00_cpu01": {"data": [1]},
        "edge01_cpu01": {"out[:,:,3:6]": [0]},
    }
    assert json.loads(files["receiver.json"]) == {
        "edge00_cpu01": {"out[:,:,3:6]": [1]},
        "edge01_cpu01": {"data[:,:,3:8]": [0]},
    }


@pytest.mark.parametrize("address", ["nx-01.local", "_a", "1nx", "10.0.0.1", "fe80::1", "::1", "me_2@nx01"])
def test_an_address_that_open_mpi_understands(address: str) -> None:
    assert render(Plan("c", (), (), (rank(0, [], [], address=address),)))["hostfile"] == f"{address} slots=1\n"


BAD_HOSTS = ["", "a b", "a\nrank 9=b", "a slots=3", "a#", 'a"', "a/b", "a\\b", "a;b", "a,b", "b\xfc", "+n0", "-a", "01"]
"""Open MPI reads ``+n0`` as a place in the allocation and ``01`` as 1; at the others its parser stumbles."""


@pytest.mark.parametrize("address", BAD_HOSTS)
def test_an_address_that_would_change_the_files_is_refused(address: str) -> None:
    with pytest.raises(CleaveError, match="cannot stand in a hostfile"):
        render(Plan("c", (), (), (rank(0, [], [], address=address),)))

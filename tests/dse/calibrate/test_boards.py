"""Which devices are measured for which others."""

from __future__ import annotations

import pytest

from dse.calibrate.boards import Board, boards, doubtful, names, twins, types
from model.cluster.platform import Platform

TEXT = """# four hosts
a, slots=0-1, gpu=V (CUDA)

b, slots=0-1, gpu=V (CUDA)
c, slots=0-1, threads=1
c, slots=2
"""
CLUSTER = Platform.parse(TEXT, "p.txt")
EVERY = boards(TEXT, CLUSTER)
SAME = {device: [1.0] for device in range(6)}


def grouped(times_s: dict[int, list[float]], text: str = TEXT) -> list[list[int]]:
    """Types, as the numbers of their lines."""
    cluster = Platform.parse(text, "p.txt")
    return [[board.number for board in group] for group in types(cluster, boards(text, cluster), times_s)]


def test_a_board_is_a_line_with_its_devices() -> None:
    assert [Board(2, (0, 1)), Board(4, (2, 3)), Board(5, (4,)), Board(6, (5,))] == EVERY


def test_lines_that_say_the_same_and_take_the_same_time_are_of_one_type() -> None:
    assert grouped(SAME) == [[2, 4], [5], [6]]
    assert grouped(SAME | {3: [1.2]}) == [[2, 4], [5], [6]]


@pytest.mark.parametrize("times", [{3: [1.3]}, {2: [0.7]}, {0: [2.0]}])
def test_a_device_that_takes_another_time_is_of_another_type(times: dict[int, list[float]]) -> None:
    assert grouped(SAME | times) == [[2], [4], [5], [6]]


THREE = "".join(f"{name}, slots=0\n" for name in "abc")


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ({}, set()),
        ({2: [1.0, 3.0]}, {(0, 1), (1, 1), (2, 1)}),
        ({2: [2.0, 4.0]}, set()),
        ({1: [1.3, 2.0], 2: [2.0, 4.0]}, {(0, 0), (1, 0)}),
        ({1: [1.0, 2.4]}, {(1, 1)}),
        ({0: [0.9, 2.1], 1: [1.05, 2.2]}, {(1, 0), (2, 0)}),
    ],
)
def test_boards_that_differ_in_some_times_only_are_in_doubt_and_the_slower_of_two_that_are_alike(
    times: dict[int, list[float]], found: set[tuple[int, int]]
) -> None:
    cluster = Platform.parse(THREE, "p.txt")
    same = {device: [1.0, 2.0] for device in range(3)}
    assert doubtful(cluster, boards(THREE, cluster), same | times) == found
    other = Platform.parse(THREE.replace("c, slots=0", "c, slots=0, arena=off"), "p.txt")
    assert not any(device == 2 for device, _ in doubtful(other, boards(THREE, other), same | times))


@pytest.mark.parametrize(
    "field", ["threads=1", "arena=off", "coefficients=mine", "cpu_power=3W", "provider=XExecutionProvider"]
)
def test_a_line_that_says_something_else_is_of_another_type(field: str) -> None:
    assert grouped(SAME, TEXT.replace("b, slots=0-1", f"b, slots=0-1, {field}")) == [[2], [4], [5], [6]]


@pytest.mark.parametrize("field", ["memory=1GB", "bandwidth=10Mbit/s", "user=me", "port=23", "interface=eth1"])
def test_what_has_to_do_with_the_host_alone_makes_no_type(field: str) -> None:
    assert grouped(SAME, TEXT.replace("b, slots=0-1", f"b, slots=0-1, {field}"))[0] == [2, 4]


def test_the_same_cores_of_one_machine_are_measured_once() -> None:
    text = "a, address=localhost, slots=0\nb, address=localhost, slots=0\nc, address=localhost, slots=1\n"
    cluster = Platform.parse(text, "p.txt")
    assert twins(cluster, boards(text, cluster)) == {1: 1, 2: 1, 3: 3}
    assert grouped({0: [1.0], 2: [1.0]}, text) == [[1, 2, 3]]
    assert grouped({0: [1.0], 2: [5.0]}, text) == [[1, 2], [3]]


def test_types_are_called_as_their_first_host_or_as_its_device_where_it_has_several() -> None:
    assert names(CLUSTER, types(CLUSTER, EVERY, SAME)) == ["a", "c_cpu01", "c_cpu2"]


def test_the_name_of_a_type_can_stand_in_a_platform_file() -> None:
    text = "pc, slots=0-3+12-15\npc, slots=4-11, threads=4\n"
    cluster = Platform.parse(text, "p.txt")
    found = names(cluster, types(cluster, boards(text, cluster), {0: [1.0], 1: [1.0]}))
    assert found == ["pc_cpu0-3_12-15", "pc_cpu4-11"]
    for name in found:
        Platform.parse(f"pc, slots=0, coefficients={name}.json", "p.txt")

from __future__ import annotations

from runtime.steady import DISTURBED, steady_s


def test_one_disturbed_frame_of_ten_does_not_count_nor_the_fastest_and_those_that_come_again_do() -> None:
    assert steady_s([1.0] * 9 + [1000.0]) == 1.0
    assert steady_s([1.0, 1.0, 4.0]) == 2.0
    assert steady_s([1.0, 3.0] * 10) == 2.0
    assert steady_s([*range(20)]) == 9.5
    assert DISTURBED == 0.1

from __future__ import annotations

import pytest

from runtime.images import Pixels
from runtime.options import Options, parse

ALL = Options(3, 2, True, "in put.npz", "-out.npz", "r.json", 4, "CUDAExecutionProvider", 7)

IMAGES = Options(input="frames/", pixels=Pixels((123.675, -1e-9), (0.1,), "bgr"))


@pytest.mark.parametrize("options", [Options(), ALL, Options(stream=True), IMAGES])
def test_there_and_back(options: Options) -> None:
    assert parse(options.arguments()) == options


def test_a_bundle_made_before_there_were_images_is_not_told_of_them() -> None:
    assert not any(word.startswith(("--mean", "--scale", "--channels")) for word in ALL.arguments())


def test_frames_that_start_together_come_before_a_stream() -> None:
    one, other = Options(5, 2, barrier=True, seed=3), Options(5, 2, stream=True, seed=3)
    assert parse(["--stream", "--barrier", "--frames=5", "--warmup=2", "--seed=3"]).passes == [one, other]
    assert (one.passes, other.passes, Options().passes) == ([one], [other], [Options()])


@pytest.mark.parametrize(
    "word",
    [
        *("--frames=0", "--warmup=-1", "--threads=0", "--frames=x", "--unknown", "--barrier=1"),
        *("--mean=", "--mean=1,,2", "--scale=nan", "--scale=1;2", "--channels=rbg"),
    ],
)
def test_what_makes_no_sense_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([word])
    assert word.partition("=")[0] in capsys.readouterr().err

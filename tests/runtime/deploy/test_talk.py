"""What is made of the answers of a script, and of a line that breaks in the middle of one; without any host."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.deploy.connect import Talk
from runtime.deploy.target import HostError


class Channel:
    """Says what it was made with, then nothing more. alive: whether the connection that it is of still is"""

    def __init__(self, says: bytes, alive: bool, code: int = 0) -> None:
        self._says, self._alive, self._code = io.BytesIO(says), alive, code
        self.status_event = threading.Event()
        self.status_event.set()

    def recv(self, size: int) -> bytes:
        return self._says.read(size)

    def makefile_stderr(self, mode: str) -> io.BytesIO:
        return io.BytesIO(b"Traceback\nMemoryError\n")

    def get_transport(self) -> Any:
        return SimpleNamespace(is_active=lambda: self._alive)

    def settimeout(self, time_s: float) -> None:
        pass

    def recv_exit_status(self) -> int:
        return self._code


def test_lines_that_are_no_answers_are_passed_over() -> None:
    talk = Talk(Channel(b'Welcome!\ncleave-answer {"a": 1}\ncleave-answer 2\n', alive=True), "python3")
    assert [talk.hear(), talk.hear()] == [{"a": 1}, 2]


@pytest.mark.parametrize("half", [b"", b'cleave-answer {"ha', b"cleave-ans"])
def test_a_connection_that_breaks_in_the_middle_of_an_answer(half: bytes) -> None:
    with pytest.raises(HostError, match=r"^the connection to it was lost: is it on"):
        Talk(Channel(half, alive=False), "python3").hear()
    with pytest.raises(HostError, match=r"^a script on it ended with code 1: MemoryError$"):
        Talk(Channel(half, alive=True, code=1), "python3").hear()

"""Bring files to a host: ask what it has, send the rest, go on where a line broke."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from runtime.deploy.connect import Connection, Talk
from runtime.deploy.parcel import File

CHUNK = 1 << 18
COMMIT_S = 600.0
"""Most seconds that a host may take for reading and hashing what it has."""


@dataclass(frozen=True)
class Shipped:
    """What came of one host.

    release: the folder there, complete and checked
    sent:    path → bytes that went over the line, of files that the host lacked
    resumed_bytes: that were there from an earlier try which broke off
    changed: files there that no longer had the hash they were stored with, and were sent again
    """

    host: str
    release: str
    sent: dict[str, int]
    kept: int
    resumed_bytes: int
    changed: tuple[str, ...]

    @property
    def sent_bytes(self) -> int:
        """All that went over the line."""
        return sum(self.sent.values())


def ship(connection: Connection, area: str, files: dict[str, File]) -> Shipped:
    """Have exactly these files in ``area``/current on the host, each with its hash.

    ``HostError`` where that fails: what was there before is current still, and what has come is kept for the next try.
    """
    wanted = {path: (file.sha256, file.size_bytes) for path, file in files.items()}
    with connection.start("store", COMMIT_S, area=area, files=wanted) as talk:
        known = talk.hear()
        have, sent, resumed = set(known["have"]), {}, 0
        for path, file in files.items():
            if file.sha256 not in have:
                start = _start(file, known["parts"].get(file.sha256))
                talk.say({"hash": file.sha256, "from": start, "size": file.size_bytes - start})
                _send(talk, file.path, start)
                have.add(file.sha256)
                sent[path], resumed = file.size_bytes - start, resumed + start
        talk.say({})
        release = talk.hear()["release"]
    kept = len(files) - len(sent)
    return Shipped(connection.target.name, release, sent, kept, resumed, tuple(sorted(known["wrong"])))


def missing(connection: Connection, area: str, files: dict[str, File]) -> dict[str, int]:
    """Path → size of what would have to be sent. Changes nothing but empty folders."""
    wanted = {path: (file.sha256, file.size_bytes) for path, file in files.items()}
    known = connection.call("store", COMMIT_S, area=area, files=wanted, look=True)
    return {path: file.size_bytes for path, file in files.items() if file.sha256 not in known["have"]}


def _start(file: File, part: tuple[int, str] | None) -> int:
    """Where to go on: after what has come, if that is how the file begins."""
    if part is None or not 0 < part[0] <= file.size_bytes:
        return 0
    digest, left = hashlib.sha256(), part[0]
    with file.path.open("rb") as stream:
        while data := stream.read(min(left, CHUNK)):
            digest.update(data)
            left -= len(data)
    return part[0] if digest.hexdigest() == part[1] else 0


def _send(talk: Talk, path: Path, start: int) -> None:
    with path.open("rb") as stream:
        stream.seek(start)
        while data := stream.read(CHUNK):
            talk.send(data)

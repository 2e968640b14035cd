"""Hosts that have one work folder between them: a home folder on a network disk, or one machine under two names."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from runtime.deploy.connect import Connection, Talk
from runtime.deploy.target import Target, each

MARK = ".cleave-mark-"
MARK_S = 20.0
"""Most seconds for each step; less than a script on a host waits for the next word (``far/common.py``)."""
_apart: list[frozenset[Target]] = []
"""Hosts that were found to share nothing: who brings them one bundle after the other asks once."""


def sharing(lines: Mapping[str, Connection]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Host → the first that has the same work folder; and what went wrong, by host.

    Each leaves a mark, then each says which marks it sees. A host's disk has no name that tells it from all others:
    copies of one memory card are alike in everything.
    """
    targets = [line.target for line in lines.values()]
    if any(known.issuperset(targets) for known in _apart):
        return {}, {}
    marks = {name: MARK + secrets.token_hex(8) for name in lines}

    def leave(target: Target) -> Talk:
        talk = lines[target.name].start("mark", MARK_S, mark=marks[target.name])
        talk.hear()
        return talk

    def look(target: Target) -> set[str]:
        return set(_told(left[target.name], {"marks": list(marks.values())})["seen"])

    def take(target: Target) -> None:
        _told(left[target.name], {})
        left[target.name].close()

    left, lost = each(targets, leave)
    there = [lines[name].target for name in left]
    seen, unseen = each(there, look)
    _, untaken = each(there, take)
    first = {name: next((other for other in marks if marks[other] in found), name) for name, found in seen.items()}
    shared = {name: other for name, other in first.items() if name != other}
    wrong = {**lost, **untaken, **unseen}
    if not shared and not wrong:
        _apart.append(frozenset(targets))
    return shared, wrong


def _told(talk: Talk, body: Any) -> Any:
    """What a host answers."""
    talk.say(body)
    return talk.hear()

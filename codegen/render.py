"""From a plan to the text files of its bundle: one program a rank, and what starts them. Pure: nothing is written."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

import runtime
from runtime.compiling import NATIVE
from runtime.errors import CleaveError
from runtime.hashing import text_hash
from runtime.plan import Box, Plan, RankPlan, Recv, Run, Send
from runtime.segment import CPU

TEMPLATES = Path(__file__).parent.parent / "templates"
RUNTIME = Path(runtime.__path__[0])

PYTHON, CPP = TARGETS = ("python", "cpp")
"""What the programs are written in. C++ takes less memory, and needs a compiler on the device (docs/targets.md)."""
ENDINGS = {PYTHON: "py", CPP: "cpp"}

HOST = re.compile(r"([A-Za-z0-9_-]+@)?[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
"""A name, an IPv4 or an IPv6 address, after the user where it must be said."""

DEVICE_FILES = (
    "__init__.py",
    "clock.py",
    "communicator.py",
    "draft.py",
    "errors.py",
    "frames.py",
    "images.py",
    "inputs.py",
    "loop.py",
    "memory.py",
    "meter.py",
    "meter_log.py",
    "metering.py",
    "mpi.py",
    "options.py",
    "pages.py",
    "program.py",
    "quota.py",
    "rank.py",
    "reading.py",
    "report.py",
    "segment.py",
    "stolen.py",
    "trace.py",
)
"""Files of ``runtime`` that a device needs. They import numpy, mpi4py and onnxruntime (and Pillow, once there
is an image to read), and run on Python 3.8."""


def render(plan: Plan, target: str = PYTHON) -> dict[str, str]:
    """Every text file of the bundle but the segments: path inside the bundle to text."""
    _check_hosts(plan)
    check_providers({rank.device: rank.provider for rank in plan.ranks}, target)
    if target == CPP:
        _check_names(plan)
    templates = _environment()
    ending = ENDINGS[target]
    files = {"plan.json": plan.to_json()}
    files[f"main.{ending}"] = templates.get_template(f"main.{ending}.j2").render(ranks=plan.ranks)
    for rank in plan.ranks:
        files[f"rank_{rank.rank:02d}.{ending}"] = _program(templates.get_template(f"rank.{ending}.j2"), plan, rank)
    files["rankfile"] = templates.get_template("rankfile.j2").render(ranks=plan.ranks)
    hosts = Counter(rank.address for rank in plan.ranks).items()
    files["hostfile"] = templates.get_template("hostfile.j2").render(hosts=hosts)
    sent = {r.device: [(s.buffer, s.dest) for s in r.steps if isinstance(s, Send)] for r in plan.ranks}
    received = {r.device: [(s.buffer, s.source) for s in r.steps if isinstance(s, Recv)] for r in plan.ranks}
    files["sender.json"], files["receiver.json"] = _table(sent), _table(received)
    return files | (_device_files() if target == PYTHON else _native_files())


@cache
def programs() -> str:
    """A short hash of all that ranks run but the plan: by it measurements are known to be of the same programs."""
    templates = [file.read_text(encoding="utf-8") for file in sorted(TEMPLATES.iterdir())]
    return text_hash("".join([*_device_files().values(), *templates]))[:8]


def _device_files() -> dict[str, str]:
    return {f"runtime/{name}": (RUNTIME / name).read_text(encoding="utf-8") for name in DEVICE_FILES}


def _native_files() -> dict[str, str]:
    sources = sorted(file for file in (RUNTIME / NATIVE).iterdir() if file.suffix in (".cpp", ".hpp"))
    return {f"{NATIVE}/{file.name}": file.read_text(encoding="utf-8") for file in sources}


def write(files: dict[str, str], folder: Path) -> None:
    """Write what ``render`` gave."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(literal=_literal, cpp=_cpp, comment=_comment)
    return environment


def _literal(value: Any) -> str:
    """A Python literal in ASCII, whatever a name holds; double quotes where they need no escape."""
    text = ascii(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text


def _cpp(value: Any) -> str:
    """A C++ literal in ASCII: of a text, a truth, a number, or tuples of these."""
    if isinstance(value, tuple):
        return f"{{{', '.join(map(_cpp, value))}}}"
    if not isinstance(value, str):
        return str(value).lower()
    plain = (chr(c) if 32 <= c < 127 and c not in b'"?\\' else f"\\{c:03o}" for c in value.encode())
    return f'"{"".join(plain)}"'


def check_providers(providers: dict[str, str], target: str) -> None:
    """``CleaveError`` where a device, by name, has a provider that programs of this kind do not know."""
    other = {device: provider for device, provider in providers.items() if target == CPP and provider != CPU}
    if other:
        raise CleaveError(*(f"{d}: a program in C++ computes on processors, not by {p}" for d, p in other.items()))


def _check_names(plan: Plan) -> None:
    """A text in C++ ends at a zero byte."""
    if any("\0" in buffer.name for rank in plan.ranks for buffer in rank.buffers):
        raise CleaveError("a tensor has a zero byte in its name, which a program in C++ cannot say")


def _check_hosts(plan: Plan) -> None:
    """Open MPI reads few characters as a host, and a number as a number: ``01`` would become ``1``."""
    bad = sorted({r.address for r in plan.ranks if not HOST.fullmatch(r.address) or r.address.isdigit()})
    if bad:
        raise CleaveError(*(f"host address {address!r} cannot stand in a hostfile" for address in bad))


def _program(template: jinja2.Template, plan: Plan, rank: RankPlan) -> str:
    variable = {buffer.name: f"b{i}" for i, buffer in enumerate(rank.buffers)}
    steps = _numbered(rank)

    def of(kind: type) -> list[tuple[str, Any]]:
        return [(name, step) for name, step in steps if isinstance(step, kind)]

    return template.render(
        rank=rank,
        ranks=len(plan.ranks),
        headline=f"Rank {rank.rank} of {len(plan.ranks)} on {rank.device}, for {plan.cnn}: {_summary(rank)}.",
        variable=variable,
        buffers=[dict(vars(b), variable=variable[b.name], index=_index(rank, b.within, b.box)) for b in rank.buffers],
        segments=[dict(vars(run), variable=name) for name, run in of(Run)],
        receives=[dict(vars(receive), variable=name) for name, receive in of(Recv)],
        sends=[dict(vars(s), variable=name, index=_index(rank, s.buffer, s.box)) for name, s in of(Send)],
        lines=[_line(name, step) for name, step in steps],
    )


def _numbered(rank: RankPlan) -> list[tuple[str, Any]]:
    """Each step with the variable that stands for it: r0, s0, m0, r1 …"""
    letters = {Recv: "r", Run: "s", Send: "m"}
    count: Counter[str] = Counter()
    numbered = []
    for step in rank.steps:
        letter = letters[type(step)]
        numbered.append((f"{letter}{count[letter]}", step))
        count[letter] += 1
    return numbered


def _line(name: str, step: Any) -> dict[str, str]:
    """A line of the frame, and what it means."""
    if isinstance(step, Recv):
        return {"call": f"{name}.wait()", "comment": f"{_comment(step.buffer)} from rank {step.source}"}
    if isinstance(step, Send):
        return {"call": f"{name}.start()", "comment": f"{_comment(step.buffer)} to rank {step.dest}"}
    return {"call": f"{name}.run()", "comment": _comment(_parts(step))}


def _comment(text: str) -> str:
    """Text that stays on its line and in ASCII."""
    return ascii(text)[1:-1]


def _parts(run: Run) -> str:
    """What a segment computes, shortened to its ends."""
    names = [p.label for p in run.parts]
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} ... {names[-1]} ({len(names)} layers)"


def _summary(rank: RankPlan) -> str:
    runs = rank.runs
    return (
        "; ".join(_parts(run) for run in runs[:3]) + ("; ..." if len(runs) > 3 else "")
        or "holds data, computes nothing"
    )


def _index(rank: RankPlan, buffer: str | None, of: Box) -> str:
    """A box of a buffer as a Python index; dimensions at the end that are whole are left out."""
    shape = rank.buffer(buffer).shape if buffer else ()
    box = list(of)
    while box and box[-1] == (0, shape[len(box) - 1]):
        box.pop()
    return f"[{', '.join(f'{start}:{stop}' for start, stop in box)}]" if box else ""


def _table(messages: dict[str, list[tuple[str, int]]]) -> str:
    """AutoDiCE's form: device key, then tensor, then the ranks at the other end."""
    table: dict[str, dict[str, list[int]]] = {}
    for device, pairs in messages.items():
        tensors = table.setdefault(device, {})
        for tensor, other in pairs:
            tensors.setdefault(tensor, []).append(other)
    return json.dumps(table, indent=1) + "\n"

"""Random small networks of all that exporters write, each under random mappings, through real bundles.

    python -m tests.campaign.networks [--networks 200] [--mappings 8] [--seed 0] [--seconds N] [--keep DIR]
    python -m tests.campaign.networks --only 17 --seed 0

Networks are those of ``tests.drawn``: a number and a seed tell all of one. Each is cut as ``tests.campaign.mappings``
cuts those of the zoo, and compared with the whole model; now and then it is loaded with ``--fold``, and always where
it is refused without, which the table counts as refused, too. Prints a line a failure, of which ``--keep`` keeps the
ONNX file, as drawn and made as small as it still fails, and a table; exit code 1 if anything is wrong or ends in an
exception that is not for people.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from onnx import ModelProto

from model.network.graph import Graph
from model.network.load import load
from runtime.errors import CleaveError
from tests.campaign.mappings import Result, run, table
from tests.drawn.network import drawn
from tests.drawn.shrinking import shrunk
from tests.tiny_cnn import save

RANKS = (2, 5)
FOLDED = 0.2
"""Share of networks that are loaded with ``--fold``."""


class Outcome(NamedTuple):
    """What became of one network. ``refused``: a sentence; ``invalid``: there is none"""

    kind: str
    invalid: bool
    refused: str
    results: list[Result]


def tried(model: ModelProto, kind: str, name: str, mappings: int, folder: Path) -> Outcome:
    """A network under so many mappings; ``name`` tells which."""
    draw = random.Random(name)
    path = save(folder, model, f"{name}.onnx")
    try:
        graph, refused, folded = loaded(path, draw.random() < FOLDED)
    except Exception as failure:  # not for people
        reason = f"{type(failure).__name__}: {failure}"
        return Outcome(kind, False, "", [Result(name, 0, "load", "", False, None, reason, 0.0)])
    if graph is None:
        return Outcome(kind, False, refused, [])
    results = [run(graph, draw.randint(*RANKS), draw, "inprocess", folded) for _ in range(mappings)]
    return Outcome(kind, False, refused, results)


def loaded(path: Path, folded: bool) -> tuple[Graph | None, str, bool]:
    """The graph, what was said of it, and whether it is folded, as it is where that is asked for."""
    try:
        return load(path, folded=folded), "", folded
    except CleaveError as error:
        said = str(error).splitlines()[0].removeprefix(f"{path}: ")
    if folded or "--fold" not in said:
        return None, said, folded
    graph, more, _ = loaded(path, True)
    return graph, more or said, True


def outcomes(arguments: argparse.Namespace) -> Iterable[Outcome]:
    """Networks one after the other, until there are enough or time is over."""
    numbers = range(arguments.networks) if arguments.only is None else [arguments.only]
    begin = time.monotonic()
    for number in numbers:
        if time.monotonic() - begin > arguments.seconds:
            return
        with tempfile.TemporaryDirectory(prefix="cleave-") as folder:
            yield _one(arguments, number, Path(folder))


def _one(arguments: argparse.Namespace, number: int, folder: Path) -> Outcome:
    kind, model = drawn(arguments.seed, number, folder)
    if model is None:
        return Outcome(kind, True, "", [])
    name = f"{kind.replace(' ', '-')}-{arguments.seed}-{number}"
    found = tried(model, kind, name, arguments.mappings, folder)
    wrong = [result for result in found.results if not result.passed]
    for result in wrong:
        print(result, flush=True)
    if wrong and arguments.keep:
        save(arguments.keep, model, f"{name}.onnx")
        needed = 1 + found.results.index(wrong[0])
        save(arguments.keep, _smaller(model, kind, name, needed, folder), f"{name}.small.onnx")
    return found


def _smaller(model: ModelProto, kind: str, name: str, mappings: int, folder: Path) -> ModelProto:
    def fails(other: ModelProto) -> bool:
        return any(not result.passed for result in tried(other, kind, name, mappings, folder).results)

    return shrunk(model, fails)


def summary(found: list[Outcome]) -> str:
    """A line a kind of network, and how often which sentence refused one."""
    more = {"": f" {'drawn':>6} {'invalid':>8} {'refused':>8}"}
    for kind in sorted({each.kind for each in found}):
        mine = [each for each in found if each.kind == kind]
        refused = sum(bool(each.refused) for each in mine)
        more[kind] = f" {len(mine):6} {sum(each.invalid for each in mine):8} {refused:8}"
    said = Counter(re.sub(r"'[^']*'|\d+", "…", each.refused) for each in found if each.refused)
    results = [result._replace(network=each.kind) for each in found for result in each.results]
    return "\n".join([table(results, more), *(f"{count:6} {sentence}" for sentence, count in said.most_common())])


def main() -> int:
    """Exit code 1 on any miss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--mappings", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--keep", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)  # of ONNX Runtime's tool
    found = list(outcomes(arguments))
    print(summary(found))
    return 0 if all(result.passed for each in found for result in each.results) else 1


if __name__ == "__main__":
    sys.exit(main())

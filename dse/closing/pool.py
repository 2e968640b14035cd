"""What is searched, and the mappings of it that are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dse.chromosomes import Chromosome
from dse.evaluation import ANALYTICAL, OBJECTIVES, SIMULATOR, evaluate, traits
from dse.settings import Settings
from model.cost.costs import CostArrays
from model.mappings.arrays import Floats
from model.mappings.mapping import Mapping

MODELS = ANALYTICAL, SIMULATOR


@dataclass(frozen=True)
class Space:
    """What is searched. hosts: name of the host of each device; metered: whether all hosts tell their energy"""

    encoding: Chromosome
    costs: CostArrays
    settings: Settings
    hosts: tuple[str, ...]
    metered: bool

    @property
    def learnt(self) -> list[int]:
        """Of these, those that a measurement tells of."""
        return [k for k in self.settings.columns if OBJECTIVES[k] != "energy_j" or self.metered]

    @property
    def judge(self) -> str:
        """Whose scores those of a front are."""
        return ANALYTICAL if self.settings.evaluator == ANALYTICAL else SIMULATOR


@dataclass(frozen=True, eq=False)
class Pool:
    """Mappings that are known: arrays that share an index.

    genes: (n, n_genes); scores: (n, 4) by evaluator, as models have them; traits: see ``dse.evaluation``
    """

    genes: NDArray[np.int32]
    mappings: tuple[Mapping, ...]
    scores: dict[str, Floats]
    traits: Floats

    @cached_property
    def numbers(self) -> dict[Mapping, int]:
        """Index of each mapping."""
        return {mapping: number for number, mapping in enumerate(self.mappings)}

    @staticmethod
    def of(space: Space) -> Pool:
        """Without any."""
        none = {who: np.zeros((0, len(OBJECTIVES))) for who in MODELS}
        return Pool(np.zeros((0, space.encoding.n_genes), dtype=np.int32), (), none, traits(space.encoding, 0))

    def joined(self, space: Space, *more: NDArray[np.int32]) -> Pool:
        """With ``(k, n_genes)`` more, of each mapping the first that means it."""
        new = dict[Mapping, NDArray[np.int32]]()
        for genes in np.unique(np.vstack(more), axis=0):
            mapping = space.encoding.decode(genes)
            if mapping not in self.numbers:
                new.setdefault(mapping, genes)
        if not new:
            return self
        genes, found = np.array(list(new.values())), traits(space.encoding, len(new))
        scores = {who: evaluate(space.encoding, space.costs, genes, who, found=found)[0] for who in MODELS}
        return Pool(
            np.vstack([self.genes, genes]),
            (*self.mappings, *new),
            {who: np.vstack([self.scores[who], scores[who]]) for who in MODELS},
            np.vstack([self.traits, found]),
        )

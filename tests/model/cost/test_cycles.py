"""The analytical model against the simulator: the same where links are free, and nothing below what must be."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cost import pricing
from model.cost.case import Case
from model.cost.costs import WATTS, CostArrays
from model.mappings.mapping import Mapping
from model.network.graph import Graph
from model.simulator import simulation, streaming
from model.simulator.simulated import play
from tests.tiny_cnn import branches, examples, graph_of, platform, random_mapping, six_layers

FRAMES, WARMUP = 60, 20
US = 1e-6


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("chain"), six_layers())


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("branches"), branches())


def drawn(c: CostArrays, seed: int) -> CostArrays:
    """Random seconds of layers, and all that LogGP has."""
    rng, devices = np.random.default_rng(seed), len(c.pool)
    work = c.work.copy()
    work[..., :WATTS] *= rng.uniform(0.5, 2.0, work[..., :1].shape)

    def some(*shape: int) -> np.ndarray:
        return rng.uniform(0, 50 * US, shape) * (rng.random() < 0.7)

    return c._replace(
        work=work,
        send=np.stack([some(devices), some(devices) * 1e-4], axis=1),
        receive=np.stack([some(devices), some(devices) * 1e-4], axis=1),
        wake=np.stack([some(devices), np.zeros(devices)], axis=1),
        gap=some(devices),
        turn=np.stack([some(devices), some(devices), some(devices) * 1e-4], axis=1),
        attend=some(devices, devices) * 1e-4,
        take=some(devices, devices) * 1e-4,
        stages=4,
        step=some(devices),
    )


def both(graph: Graph, mapping: Mapping, devices: int, seed: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Latency and period of the analytical model, and of the simulator, whose own stream is compared."""
    case = Case.of(graph, platform(devices, ", bandwidth=1Gbit/s, latency=0.05ms"), mapping)
    case = replace(case, costs=drawn(case.costs, seed))
    on = (case.g, case.shards, case.messages, case.costs, case.ledger)
    stage = simulation.stage(case.size, case.costs, FRAMES + WARMUP)
    latency = simulation.simulate(*on, stage)
    period = streaming.stream(*on, stage, FRAMES + WARMUP, WARMUP)
    return pricing.price(*on, pricing.desk(case.size, case.costs)), (latency, period)


@given(st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
@examples(40)
def test_both_judges_say_the_same_of_a_chain_that_goes_to_and_fro_between_two_devices(
    chain: Graph, draw: random.Random, seed: int
) -> None:
    mapping = Mapping.whole(chain, [draw.randrange(2) for _ in chain.layers])
    mapping = replace(mapping, reader=draw.randrange(2), writer=draw.randrange(2))
    analytical, simulated = both(chain, mapping, 2, seed)
    assert analytical[0] == pytest.approx(simulated[0], rel=1e-9)
    assert analytical[1] <= simulated[1] * 1.02  # the stream is short
    assert analytical[1] >= simulated[1] * 0.9  # frames may meet on a link


@given(st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
@examples(40)
def test_the_longest_cycle_is_the_same_after_either_judge_had_a_frame_alone(
    graph: Graph, draw: random.Random, seed: int
) -> None:
    case = Case.of(graph, platform(4, ", bandwidth=1Gbit/s, latency=0.05ms"), random_mapping(draw, graph, 4))
    case = replace(case, costs=drawn(case.costs, seed))
    after_simulation = play(case, 1, 0).period_s
    desk = pricing.desk(case.size, case.costs)
    _, period_s = pricing.price(case.g, case.shards, case.messages, case.costs, case.ledger, desk)
    assert after_simulation == pytest.approx(period_s, rel=1e-9)


@given(st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
@examples(40)
def test_no_stream_is_faster_than_its_longest_cycle(graph: Graph, draw: random.Random, seed: int) -> None:
    analytical, simulated = both(graph, random_mapping(draw, graph, 4), 4, seed)
    assert analytical[1] <= simulated[1] * 1.02

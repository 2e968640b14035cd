"""Meters on their way from the platform file to the plan and the programs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from codegen.bundle import Form, source, write_bundle
from codegen.render import TARGETS
from model.cluster.platform import Platform
from model.mappings.mapping import Mapping
from model.network.load import load
from runtime.launch import read_plan
from tests.tiny_cnn import save, six_layers


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_rank_of_a_host_reads_its_meter(target: str, tmp_path: Path) -> None:
    """Watts go with every rank. A program in C++ knows no meter."""
    graph = load(save(tmp_path, six_layers()))
    lines = (
        "pi, slots=0, cpu_power=2W, idle_power=1500mW, meter=ina3221:VDD_IN+VDD_SOC",
        'nx, idle_power=3W, meter=csv:/var/log/"a" \\b.csv',
        "pi, slots=1",
        "pi, slots=2, cpu_power=4W",
    )
    cluster = Platform.parse("\n".join(lines), "two.txt")
    mapping = Mapping.whole(graph, [1, 2, 3, 1, 2, 3])
    made = write_bundle(
        graph, cluster, mapping, source(graph, False, {}), tmp_path / "b", force=False, form=Form(target=target)
    )
    assert [(rank.device, rank.meter, rank.idle_w, rank.busy_w) for rank in made.ranks] == [
        ("nx_cpu0", 'csv:/var/log/"a" \\b.csv', 3.0, None),
        ("pi_cpu1", "ina3221:VDD_IN+VDD_SOC", 1.5, None),
        ("pi_cpu2", None, 1.5, 4.0),
    ]
    assert read_plan(tmp_path / "b") == made
    if target == "python":
        places = [runpy.run_path(str(tmp_path / f"b/rank_0{r.rank}.py"))["PLACE"] for r in made.ranks]
        assert [place.meter for place in places] == [rank.meter for rank in made.ranks]

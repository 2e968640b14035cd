"""Cores that a mapping names of a host: its CPU is divided as AutoDiCE divides it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cluster.platform import Platform
from model.mappings.autodice_cores import divided, platform_of
from runtime.errors import CleaveError
from tests.tiny_cnn import examples

PC = Platform.parse("pc, arm, slots=0-5, gpu=NVIDIAVolta (CUDA), threads=4\nnano:10.0.0.7\n", "pc.txt")


def names(platform: Platform) -> list[str]:
    return [device.name for device in platform.devices]


@pytest.mark.parametrize(
    ("keys", "devices"),
    [
        ([], ["pc_cpu012345", "pc_gpu", "nano_cpu0"]),
        (["pc_cpu12", "pc_cpu0"], ["pc_cpu0", "pc_cpu12", "pc_gpu", "nano_cpu0"]),
        (["pc_arm210", "pc_gpu"], ["pc_cpu012", "pc_gpu", "nano_cpu0"]),
        (["pc_cpu012345", "nano"], ["pc_cpu012345", "pc_gpu", "nano_cpu0"]),
        (["pc_cpu67", "nano_cpu01", "pi_cpu0", "pc_cpu00", ""], ["pc_cpu012345", "pc_gpu", "nano_cpu0"]),
    ],
)
def test_a_cpu_is_divided_as_keys_want_it(keys: list[str], devices: list[str]) -> None:
    assert names(divided(PC, keys, "mapping.json")) == devices


def test_a_part_has_as_many_threads_as_cores_at_most() -> None:
    parts = divided(PC, ["pc_cpu0", "pc_cpu12345"], "mapping.json").devices
    assert [(part.cores, part.threads) for part in parts[:2]] == [((0,), 1), ((1, 2, 3, 4, 5), 4)]


def test_a_core_serves_one_rank() -> None:
    with pytest.raises(CleaveError) as caught:
        divided(PC, ["pc_cpu01", "pc_cpu123"], "mapping.json")
    assert caught.value.sentences == ("mapping.json: two keys have core 1 of 'pc', and a core serves one rank",)


@pytest.mark.parametrize(
    "text", ['{"format": "cleave-mapping"}', "[1]", "{", '"pc_cpu0"', '{"format": 1, "pc_cpu0": []}']
)
def test_other_files_divide_nothing(text: str) -> None:
    assert platform_of(text, PC) == PC


def test_a_mapping_of_ours_divides_where_it_names_what_is_not_there() -> None:
    layers = {"a": "pc_cpu0", "b": [{"device": "pc_gpu", "axis": 1}, {"device": "pc_cpu12", "axis": 1}]}
    parts = platform_of(json.dumps({"format": "cleave-mapping", "layers": layers, "reader": "nano_cpu0"}), PC)
    assert names(parts) == ["pc_cpu0", "pc_cpu12", "pc_gpu", "nano_cpu0"]
    assert platform_of(json.dumps({"format": "cleave-mapping", "layers": {"a": "pc_gpu"}}), PC) == PC
    assert platform_of(json.dumps({"layers": {"a": [1], "b": None}}), PC) == PC


@given(st.lists(st.sampled_from("abc"), min_size=6, max_size=6))
@examples(50)
def test_parts_are_those_named_and_hosts_and_pools_stay(owners: list[str]) -> None:
    cores = {owner: [core for core in range(6) if owners[core] == owner] for owner in set(owners)}
    keys = ["pc_cpu" + "".join(map(str, reversed(own))) for own in cores.values()]
    found = platform_of(json.dumps({key: [] for key in keys}), PC)
    assert sorted(device.cores for device in found.devices[:-2]) == sorted(map(tuple, cores.values()))
    assert (found.hosts, found.pools, names(found)[-2:]) == (PC.hosts, PC.pools, names(PC)[-2:])
    assert {(device.host, device.pool) for device in found.devices[:-2]} == {(0, 0)}

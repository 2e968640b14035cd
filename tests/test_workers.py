"""Tests side by side: which of them stay together."""

from __future__ import annotations

import re

from tests.workers import CLUSTER, ROOT, group, on_cluster


def test_files_that_make_clusters_in_a_box_have_tests_with_the_marker() -> None:
    """So a test that forgets it is found here, not by what it disturbs."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    makes = re.compile(r"from tests\.cluster import .*(Cluster|standing)")
    there = {name for name, text in files.items() if makes.search(text)}
    assert len(there) > 5
    assert {name for name in there if not on_cluster(name)} == set()


def test_tests_on_a_cluster_are_one_group_and_others_stay_with_those_of_their_file() -> None:
    aligned, jobs = "tests/runtime/test_clocks_of_hosts.py", "tests/test_cluster_jobs.py"
    assert group(f"{aligned}::test_hosts_whose_clocks_are_apart_are_aligned") == CLUSTER
    assert group(f"{jobs}::test_a_hybrid_mapping_gives_the_whole_model_s_answer_from_all_hosts[a::b]") == CLUSTER
    assert group(f"{aligned}::test_ranks_whose_clocks_are_apart_are_aligned[a-b]") == aligned

"""What all tests share: ``--refresh-golden`` and the fixtures ``golden``, ``testbed``, ``hurried`` and ``wheels``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster import Cluster

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # so that plain ``pytest`` works in a fresh checkout


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="write the golden files instead of comparing")


def pytest_configure() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would the programs that tests interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    from tests.workers import workers

    return workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.workers import Groups

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from tests.workers import in_order

        items[:] = in_order(items)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: ``text`` is what ``tests/golden/name`` holds."""

    def check(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--refresh-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path}: run pytest --refresh-golden"
        assert text == path.read_text(encoding="utf-8"), f"{name} has changed: look, then pytest --refresh-golden"

    return check


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four hosts on one machine, gigabit links (``dse testbed up --spec testbed-4``); skips where that cannot be."""
    from tests.cluster import standing

    with standing("testbed-4", tmp_path_factory.mktemp("cluster") / "testbed", "s") as cluster:
        yield cluster


@pytest.fixture
def hurried(testbed: Cluster) -> Iterator[None]:
    """Hosts that do not take longer than they must; for short runs, since long ones would take the whole machine."""
    with testbed.hurried():
        yield


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages that ``--prepare`` installs; skips where pip cannot get them."""
    from runtime.errors import CleaveError
    from tests.cluster import download

    try:
        return download(tmp_path_factory.mktemp("wheels"))
    except CleaveError as error:
        pytest.skip(str(error))

"""Bundles that differ in one file, to be run beside one another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from runtime.hashing import file_hash

Policies = Mapping[str, str]
"""What is added at the end of a file, by name."""


def altered(bundle: Path, made: Path, file: str, text: str) -> Path:
    """A copy of a bundle in which a file holds another text, as if it had been generated so."""
    shutil.copytree(bundle, made)
    (made / file).write_text(text, encoding="utf-8")
    body = json.loads((made / "bundle.json").read_text())
    body["files"][file] = file_hash(made / file)
    (made / "bundle.json").write_text(json.dumps(body))
    return made


def variants(bundle: Path, folder: Path, file: str, policies: Policies) -> dict[str, Path]:
    """A copy in ``folder`` for each policy."""
    text = (bundle / file).read_text(encoding="utf-8")
    return {
        name: altered(bundle, folder / str(k), file, text + more) for k, (name, more) in enumerate(policies.items())
    }

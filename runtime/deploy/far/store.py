"""Keep folders of files by their hashes: only what a host lacks comes over the line, and ``current`` switches at once.

WORK/bundles/NAME/incoming/HASH.part    a file that is on its way, or was when the line broke
                  releases/ID           a whole folder; ID follows from the names and hashes of its files
                  current, previous     links to two of these
"""

import hashlib
import json
import os
import shutil
from typing import Any, Dict, Set, Tuple

from runtime.deploy.far.common import FarError, answer, file_hash, folder, inside, line, take
from runtime.deploy.far.lock import alone
from runtime.deploy.far.remains import in_use


def start(request: Dict[str, Any]) -> None:
    """Say what is there, take the rest, switch."""
    root = inside(request["work"], request["area"])
    if request.get("look") and not os.path.isdir(root):
        answer({"have": [], "wrong": {}, "parts": {}})
        return
    for part in ("incoming", "releases"):
        folder(root, part)
    lock = alone(root, "another deployment to it")
    wanted = {path: hash_ for path, (hash_, _) in request["files"].items()}
    have, wrong = known(root, set(wanted.values()))
    answer({"have": sorted(have), "wrong": wrong, "parts": parts(root, set(wanted.values()) - set(have))})
    if request.get("look"):
        return
    receive(root, have)
    identity = hashlib.sha256(json.dumps(sorted(wanted.items())).encode("utf-8")).hexdigest()[:16]
    release = os.path.join(root, "releases", identity)
    fill(release, wanted, have, root)
    switch(root, identity)
    clear(root, in_use(request["work"]))
    answer({"release": release})
    lock.close()


def known(root: str, wanted: Any) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Hash → a file that really has it; and path → ``changed`` or ``gone`` of those that lost theirs."""
    have = {}  # type: Dict[str, str]
    wrong = {}  # type: Dict[str, str]
    hashes = {}  # type: Dict[Tuple[int, int], str]
    for release in sorted(os.listdir(os.path.join(root, "releases"))):
        top = os.path.join(root, "releases", release)
        stored = manifest(top)
        for path, hash_ in sorted(stored.items()):
            file = os.path.join(top, path)
            if hash_ not in wanted:
                continue
            if os.path.isfile(file) and not os.path.islink(file) and once(file, hashes) == hash_:
                have.setdefault(hash_, file)
            else:
                wrong[path] = "changed" if os.path.lexists(file) else "gone"
    for name in os.listdir(os.path.join(root, "incoming")):
        file = os.path.join(root, "incoming", name)
        if os.path.islink(file):  # not ours, and what comes would be written where it leads
            os.remove(file)
        elif name in wanted and file_hash(file) == name:
            have.setdefault(name, file)
    return have, wrong


def once(path: str, hashes: Dict[Tuple[int, int], str]) -> str:
    """Hash of a file; of one with several names, read once."""
    status = os.stat(path)
    key = (status.st_dev, status.st_ino)
    if key not in hashes:
        hashes[key] = file_hash(path)
    return hashes[key]


def manifest(release: str) -> Dict[str, str]:
    """Path → hash of the files that a release was made of."""
    try:
        with open(release + "/.files.json", encoding="utf-8") as file:
            found = json.load(file)  # type: Dict[str, str]
            return {path: hash_ for path, hash_ in found.items() if inside(release, path)}
    except (OSError, ValueError, AttributeError):
        return {}


def parts(root: str, missing: Any) -> Dict[str, Any]:
    """Hash of a whole file → bytes and hash of what has come of it."""
    found = {}
    for hash_ in sorted(missing):
        file = os.path.join(root, "incoming", hash_ + ".part")
        if os.path.exists(file):
            found[hash_] = [os.path.getsize(file), file_hash(file)]
    return found


def receive(root: str, have: Dict[str, str]) -> None:
    """Files that come, each ``{"hash": …, "from": …, "size": …}`` and that many bytes, until one without a hash."""
    while True:
        head = line()
        if head is None:
            raise FarError("the connection was lost")
        if not head.get("hash"):
            return
        hash_ = head["hash"]
        part = inside(os.path.join(root, "incoming"), hash_ + ".part")
        with open(part, "r+b" if head["from"] else "wb") as file:
            file.truncate(head["from"])
            file.seek(head["from"])
            take(file, head["size"])
            os.fsync(file.fileno())
        if file_hash(part) != hash_:
            os.remove(part)
            raise FarError("a file came over damaged and was thrown away; try again")
        whole = part[: -len(".part")]
        os.replace(part, whole)
        have[hash_] = whole


def fill(release: str, wanted: Dict[str, str], have: Dict[str, str], root: str) -> None:
    """Make the folder of a release beside its place: links to files that are here already, then one rename."""
    draft = os.path.join(root, "draft")
    shutil.rmtree(draft, ignore_errors=True)
    folder(draft)
    for path, hash_ in wanted.items():
        target = inside(draft, path)
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        try:
            os.link(have[hash_], target)
        except OSError:  # not every file system has links
            shutil.copyfile(have[hash_], target)
        os.chmod(target, 0o600)
    with open(draft + "/.files.json", "w", encoding="utf-8") as file:
        json.dump(wanted, file)
    aside = os.path.join(root, "aside")
    shutil.rmtree(aside, ignore_errors=True)
    if os.path.lexists(release):
        os.rename(release, aside)
    os.rename(draft, release)
    shutil.rmtree(aside, ignore_errors=True)


def switch(root: str, identity: str) -> None:
    """``current`` becomes this release, in one step; what it was before is ``previous``."""
    current = os.path.join(root, "current")
    before = os.readlink(current) if os.path.islink(current) else None
    point(current, identity)
    if before and os.path.basename(before) != identity:
        point(os.path.join(root, "previous"), os.path.basename(before))


def point(link: str, identity: str) -> None:
    """Have a link lead to a release."""
    draft = link + ".new"
    if os.path.lexists(draft):
        os.remove(draft)
    os.symlink(os.path.join("releases", identity), draft)
    os.replace(draft, link)


def clear(root: str, used: Set[str]) -> None:
    """Throw away what neither link leads to and no run uses."""
    links = [os.path.join(root, name) for name in ("current", "previous")]
    kept = {os.path.basename(os.readlink(link)) for link in links if os.path.islink(link)}
    for name in os.listdir(os.path.join(root, "releases")):
        release = os.path.join(root, "releases", name)
        if name not in kept and release not in used:
            shutil.rmtree(release, ignore_errors=True)
    shutil.rmtree(os.path.join(root, "incoming"), ignore_errors=True)

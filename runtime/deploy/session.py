"""Runs on the cluster: a guard on every host, mpirun on the head host, and nothing left when it is over."""

from __future__ import annotations

import errno
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from runtime.compiling import frames_file
from runtime.deploy import check, network
from runtime.deploy.cause import Failure, ranks_on
from runtime.deploy.connect import BUSY, LOOK, Connection, source
from runtime.deploy.network import Site
from runtime.deploy.parcel import Shipment
from runtime.deploy.post import Post, dismiss, keep_alive
from runtime.deploy.target import DeployError, Target, each, everywhere
from runtime.errors import CleaveError
from runtime.images import PLAIN
from runtime.launch import QUIET, TIMEOUT_S, Finished, Mpirun
from runtime.options import Options

OWN_KEY = "key"
TRUSTS = (OWN_KEY, "existing")
"""How the other hosts let the head host in: by a key of this run alone, or as they do anyway."""
ASK_S = 10.0
"""For a guard to say what it saw of a run that failed."""
SETTLE_S = 0.5
"""Until a connection notices that not only the guard is gone."""
DEAF_S = 60.0
"""Until the head host is given up whose guard gives no sign of life, though it is in the network: its disk or its
memory may hang. The other hosts are watched by the head's ssh."""
LATE_S = 40.0
"""Past the time of a run, until it is given up though mpirun does not end."""
FRAMES, OUTPUT, REPORT = "frames.npz", "output.npz", "report.json"
"""Files of a run, in its folder on the hosts that have to do with them."""

Facts = Mapping[str, Mapping[str, Any]]


class Session:
    """Guards on all hosts, ready to run a bundle again and again."""

    def __init__(self, shipment: Shipment, posts: dict[str, Post], head: str, facts: Facts, trust: str) -> None:
        self._plan, self._posts, self._facts, self._own_key = shipment.plan, posts, facts, trust == OWN_KEY
        self._head, self._others = posts[head], [post for name, post in posts.items() if name != head]
        self._command = self._furnish()

    def run(self, options: Options, timeout_s: float = TIMEOUT_S) -> Finished:
        """Run the bundle once. ``options`` as for a run here: input, output and report are paths on the workstation.

        ``CleaveError`` when a rank fails, a host is lost or time is up.
        """
        self._bring_frames(options)
        there = replace(
            options,
            input=FRAMES if options.input else None,
            output=OUTPUT if options.output else None,
            report=REPORT if options.report else None,
            pixels=PLAIN,
        )
        if self._own_key:
            self._let_in(timeout_s)
        done = self._wait([*self._command, *there.arguments()], timeout_s)
        done |= {name: done[name].replace("\0", "") for name in ("stdout", "stderr")}
        if done["code"] != 0:
            self._fail(done, timeout_s)
        first = self._posts[self._plan.ranks[0].host]
        for name, to in ((OUTPUT, options.output), (REPORT, options.report)):
            if to is not None:
                first.fetch(name, Path(to))
        return Finished(done["stdout"], done["stderr"], done["time_s"])

    def _fail(self, done: Any, timeout_s: float) -> NoReturn:
        """Ask all guards what they saw, and say why the run failed."""
        seen, silent = self._seen()
        if silent:
            raise self._lost(silent)
        free = {name: found["free memory"] for name, found in self._facts.items()}
        addresses = {name: post.site.connection.address for name, post in self._posts.items()}
        failure = Failure(self._plan, self._head.name, done, seen, free, addresses, self._mend())
        error = failure.error()
        if done["code"] is None:
            raise CleaveError(f"the ranks were not done after {timeout_s:g} s and were ended", *error.sentences)
        raise error

    def _seen(self) -> tuple[dict[str, Any], list[str]]:
        """What guards saw, and the hosts of those that do not answer."""
        seen, silent = {}, []
        for name, post in self._posts.items():
            try:
                seen[name] = post.tell("seen", timeout_s=ASK_S)
            except DeployError:
                silent.append(name)
        return seen, silent

    def _lost(self, hosts: Sequence[str]) -> DeployError:
        """Hosts that are gone, or where only the guard is."""
        failures = {}
        time.sleep(SETTLE_S)
        for host in hosts:
            post = self._posts[host]
            there = post.site.connection.alive and post.talk.ready()
            what, do = ("its guard was ended", "is its memory full? run it again") if there else ("was lost", LOOK)
            failures[host] = [f"{what} during the run ({ranks_on(self._plan, host)}): {do}"]
        return DeployError(dict(failures))

    def _mend(self) -> str:
        """What to do where the other hosts do not let the head host in."""
        if self._own_key:
            return "has sshd there another AuthorizedKeysFile than .ssh/authorized_keys? then use --trust existing"
        return "use --trust key, or let the key of that host in on the others"

    def _furnish(self) -> list[str]:
        """Put what mpirun reads on the head host; returns its command."""
        sites = {name: post.site for name, post in self._posts.items()}
        head, others = self._head.site, [post.site for post in self._others]
        files = network.run_files(self._plan, {name: site.connection.address for name, site in sites.items()})
        found = self._facts[self._head.name]
        mpirun = Mpirun(found["mpirun"], check.two(found["open mpi"]))
        command = network.command(mpirun, head, list(sites.values()), files["rankfile"], len(self._plan.ranks))
        files |= {**network.head_files(head, others, self._own_key), "agent.py": source("agent")}
        for name, text in files.items():
            self._head.tell("write", name=name, text=text)
        self._head.tell("write", name="agent", text=head.agent, program=True)
        return command

    def _let_in(self, time_s: float) -> None:
        """Have the other hosts trust the head host for one run."""
        if not self._others:
            return
        key = self._head.tell("key")["key"]
        sources = self._facts[self._head.name]["sources"]
        for post in self._others:
            come = sources.get(post.site.connection.address)
            if come is None:
                raise DeployError(
                    {self._head.name: [f"finds no way to {post.name}: correct its address, or the network"]}
                )
            post.tell("trust", key=key, time_s=time_s, **{"from": come})  # one by one: some may have one home

    def _bring_frames(self, options: Options) -> None:
        """Frames of the user go to the hosts that hold an input, as one kind of file."""
        if options.input is None:
            return
        with TemporaryDirectory(prefix="cleave-") as folder:
            file = Path(folder) / FRAMES
            try:
                frames_file(self._plan, options, str(file))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                what = "has no room for all frames as arrays: take fewer at a time (--frames)"
                raise CleaveError(f"{folder}: {what}, or name a folder on a larger disk with TMPDIR") from error
            hosts = sorted({rank.host for rank in self._plan.ranks if rank.inputs})
            full = {host: check.disk(self._facts[host], file.stat().st_size) for host in hosts}
            if any(full.values()):
                fewer = ", or take fewer frames at a time (--frames)"
                raise DeployError({host: [text + fewer for text in why] for host, why in full.items() if why})
            for host in hosts:
                self._posts[host].put(FRAMES, file)

    def _wait(self, command: list[str], timeout_s: float) -> Any:
        """Start mpirun and watch all hosts until it has ended."""
        heard = time.monotonic()
        deadline = heard + timeout_s + LATE_S
        self._head.begin("go", command=command, timeout_s=timeout_s)
        while time.monotonic() < heard + DEAF_S:
            if self._head.talk.ready():
                said = self._head.answer()
                if "alive" not in said:
                    return said
                heard = time.monotonic()
            time.sleep(0.02)
            lost = [post.name for post in self._others if post.talk.ready()]  # none has anything to say now
            lost += [post.name for post in self._posts.values() if not post.site.connection.alive]
            if lost:
                raise self._lost(lost)
            if time.monotonic() > deadline:
                raise CleaveError(f"{self._head.name}: mpirun was not done after {timeout_s:g} s and did not end")
        raise DeployError({self._head.name: [f"gave no sign of life for {DEAF_S:.0f} s during the run: {BUSY}"]})


@contextmanager
def session(
    shipment: Shipment,
    connections: Mapping[str, Connection],
    facts: Facts,
    releases: Mapping[str, str],
    head: str,
    trust: str = OWN_KEY,
) -> Iterator[Session]:
    """A session on these hosts, until the block ends, however it ends.

    facts, releases: by host, what ``check.look`` found, and where ``ship`` has put the bundle
    head: the host that mpirun runs on; one of ``connections``, with a rank or not
    """
    run = secrets.token_hex(8)
    over = threading.Event()

    def guard(target: Target) -> Post:
        connection, found = connections[target.name], facts[target.name]
        talk = connection.start(
            "guard",
            run=run,
            environment=QUIET,
            python=found["python"],
            mpirun=found["mpirun"],
            release=releases.get(target.name, ""),
            gate=source("gate"),
            launch=source("launch", "sh"),
        )
        there = talk.hear()
        networks = network.networks(target.interface, found)
        return Post(Site(connection, there["root"], there["python"], there["root user"], networks), talk)

    network.distinct(list(connections.values()))
    posts = everywhere([connection.target for connection in connections.values()], guard)
    try:
        threading.Thread(target=keep_alive, args=(list(posts.values()), over), daemon=True).start()
        yield Session(shipment, posts, head, facts, trust)
    finally:
        over.set()
        silent = [post.site.connection for post in dismiss(list(posts.values()))]
        there = [connection.target for connection in silent if connection.alive]
        dismiss(list(each(there, guard)[0].values()))  # another guard clears away where one was killed

"""One SSH connection to one host, and calls of our own small scripts over it.

Nothing that a file holds is ever part of a shell command: what runs is Python with a constant program, and the script
and its request, as JSON, come over standard input.
"""

from __future__ import annotations

import getpass
import json
import logging
import shlex
import socket
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import paramiko

from runtime.deploy.configured import believed, configured
from runtime.deploy.far.common import MARK
from runtime.deploy.keys import Trust, entry
from runtime.deploy.target import HostError, Target

CONNECT_S, LOGIN_S, ANSWER_S = 10.0, 20.0, 120.0
"""Most seconds for reaching a host, for logging in, and for the next word of a script that runs there."""
ENDING_S = 5.0
"""Most seconds that a script which says nothing more may take to end."""
CHUNK = 1 << 18
"""Bytes that are taken at a time."""
USUAL_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
"""Where a user has keys whose configuration names none, in ``~/.ssh``."""
ALIVE_S, LOST_S = 5, 20
"""Seconds between signs of life, and until a host that answers none is given up."""
LOOK = "is it on, is it in the network?"
BUSY = "has it much else to do, or hangs its disk or its own network? look there, and try again"
BOOT = (
    "import sys, json, types; "
    "modules, script, request = json.loads(sys.stdin.buffer.readline().decode('utf-8'))\n"
    "for name, text in modules:\n"
    "    module = types.ModuleType('runtime.deploy.far.' + name); sys.modules[module.__name__] = module\n"
    "    exec(compile(text, name, 'exec'), module.__dict__)\n"
    "sys.modules['runtime.deploy.far.common'].begin(script, request)"
)
"""Runs on the host, on any Python 3."""
MODULES = ("common", "cores", "lock", "remains")
"""Of ``runtime/deploy/far``, what scripts share; each may import those before it."""

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what it has to say comes as exceptions


class Connection:
    """An open connection. ``HostError`` for all that goes wrong with it."""

    def __init__(self, target: Target, transport: Any, address: str, port: int) -> None:
        self.target, self._transport = target, transport
        self.address, self.port, self.user = address, port, transport.get_username()

    @property
    def host_key(self) -> str:
        """The key of the host, checked, as a line of a known_hosts file has it."""
        key = self._transport.get_remote_server_key()
        return f"{key.get_name()} {key.get_base64()}"

    @property
    def alive(self) -> bool:
        """Whether the host still answers."""
        return bool(self._transport.is_active())

    def start(self, script: str, timeout_s: float = ANSWER_S, **request: Any) -> Talk:
        """Start ``runtime/deploy/far/SCRIPT.py`` on the host."""
        try:
            channel = self._transport.open_session(timeout=LOGIN_S)
            channel.settimeout(timeout_s)
            channel.exec_command(f"exec {shlex.quote(self.target.python)} -I -c {shlex.quote(BOOT)}")
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise lost(error) from error
        talk = Talk(channel, self.target.python)
        shared = [(name, source(name)) for name in MODULES]
        talk.say([shared, source(script), {"work": self.target.work, **request}])
        return talk

    def call(self, script: str, timeout_s: float = ANSWER_S, **request: Any) -> Any:
        """Run a script that answers once."""
        with self.start(script, timeout_s, **request) as talk:
            return talk.hear()

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


class Talk:
    """A script that runs on a host: lines of JSON and, between them, plain bytes go to it, and answers come back."""

    def __init__(self, channel: Any, python: str) -> None:
        self._channel, self._python = channel, python
        self._kept = b""  # what has come and was not asked for yet

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the script sees the end of its input."""
        self._channel.close()

    def ready(self) -> bool:
        """Whether there is something to hear, if only that the script has ended."""
        channel = self._channel
        return bool(b"\n" in self._kept or channel.recv_ready() or channel.closed or channel.exit_status_ready())

    def say(self, body: Any) -> None:
        """Send a line."""
        self.send(json.dumps(body).encode() + b"\n")

    def send(self, data: bytes) -> None:
        """Send bytes. Where the script has ended, ``hear`` tells why, so that is no error here."""
        try:
            self._channel.sendall(data)
        except TimeoutError:
            raise HostError("it takes no more data; the link may be cut, or its disk too slow") from None
        except (OSError, EOFError):
            with suppress(OSError, EOFError):
                self._channel.shutdown_write()

    def hear(self, timeout_s: float | None = None) -> Any:
        """The next answer; ``HostError`` for one that tells of an error, or where there is none in time."""
        if timeout_s is not None:
            self._channel.settimeout(timeout_s)
        while True:
            line = self._line()
            if line.startswith(MARK.encode()):
                answer = json.loads(line[len(MARK) :])
                if isinstance(answer, dict) and "error" in answer:
                    raise HostError(answer["error"])
                return answer

    def read(self, size: int) -> bytes:
        """So many bytes that follow an answer."""
        while len(self._kept) < size:
            try:
                more = self._more()
            except (OSError, EOFError) as error:
                raise lost(error) from error
            if not more:
                raise HostError(f"the connection to it was lost: {LOOK}")
        data, self._kept = self._kept[:size], self._kept[size:]
        return data

    def _line(self) -> bytes:
        while b"\n" not in self._kept:
            try:
                more = self._more()
            except TimeoutError:
                raise HostError(f"it gave no answer for {self._channel.gettimeout():.0f} s: {BUSY}") from None
            except (OSError, EOFError) as error:
                raise lost(error) from error
            if not more:
                raise HostError(self._ending())
        line, _, self._kept = self._kept.partition(b"\n")
        return line

    def _more(self) -> bool:
        """Wait for something; False: nothing comes any more."""
        data = self._channel.recv(CHUNK)
        self._kept += data
        return bool(data)

    def _ending(self) -> str:
        """Why a script ended without an answer."""
        if not self._channel.get_transport().is_active():
            return f"the connection to it was lost: {LOOK}"
        self._channel.settimeout(ENDING_S)
        try:
            said = self._channel.makefile_stderr("rb").read(4000).decode("utf-8", "replace").strip().splitlines()
        except OSError:
            said = []
        code = self._channel.recv_exit_status() if self._channel.status_event.wait(ENDING_S) else "unknown"
        if code == 127:
            return f"has no Python at {self._python!r}: install python3, 3.8 or later, or say where it is with --python"
        return f"a script on it ended with code {code}" + (f": {said[-1]}" if said else "")


def connect(target: Target, trust: Trust, password: str | None = None) -> Connection:
    """Reach a host, check its key, log in as OpenSSH would. Ends within ``CONNECT_S + 2 * LOGIN_S``."""
    said = configured(target.address)
    address, port = said.get("hostname", target.address), target.port or said.get("port", 22)
    trust, alias = believed(trust, said), said.get("hostkeyalias")
    known_as = (alias, 22) if alias else (address, port)
    files = [target.key] if target.key else said.get("identityfile", [])
    keys = _keys(target, files)
    only = target.key is not None or said.get("identitiesonly", "no") == "yes"
    line = _reach(address, port)
    client, check = paramiko.SSHClient(), _Check(target, trust, known_as)
    client.set_missing_host_key_policy(check)
    try:
        client.connect(
            address,
            port,
            username=target.user or said.get("user"),
            password=password,
            pkey=_of_agent(files) if only else None,
            key_filename=keys,
            look_for_keys=not (only and files),
            allow_agent=not only,
            sock=line,
            banner_timeout=LOGIN_S,
            auth_timeout=LOGIN_S,
            timeout=CONNECT_S,
            transport_factory=_transport(trust, target, known_as),
        )
    except HostError:
        line.close()
        raise
    except paramiko.PasswordRequiredException:
        line.close()
        beside = ", with its .pub beside it" if only else ""
        how = f"add it to the agent (ssh-add){beside}, or use --ask-password"
        raise HostError(f"the key to log in with is encrypted: {how}") from None
    except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
        line.close()
        if check.passed and isinstance(error, (paramiko.SSHException, ValueError)):
            raise HostError(_refused(target, said.get("user"), error, client.get_transport())) from None
        raise HostError(f"there is no SSH at port {port} that can be spoken with: {error or 'it hung up'}") from error
    transport: Any = client.get_transport()
    transport.set_keepalive(ALIVE_S)
    return Connection(target, transport, address, port)


def source(script: str, language: str = "py") -> str:
    """The text of a script that runs on hosts."""
    return files("runtime.deploy.far").joinpath(f"{script}.{language}").read_text(encoding="utf-8")


def lost(error: Exception) -> HostError:
    """A connection that broke."""
    return HostError(f"the connection to it was lost ({str(error) or type(error).__name__}): {LOOK}")


class _Check(paramiko.MissingHostKeyPolicy):
    """Asked for every host: the client itself is given no known keys, so that one place decides."""

    def __init__(self, target: Target, trust: Trust, known_as: tuple[str, int]) -> None:
        self._target, self._trust, self._known_as = target, trust, known_as
        self.passed = False  # all that goes wrong afterwards is in logging in

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raise unless the key is the right one."""
        self._trust.check(self._target.name, *self._known_as, key)
        self.passed = True


def _transport(trust: Trust, target: Target, known_as: tuple[str, int]) -> Any:
    """Ask for a kind of key that is known of the host, as OpenSSH does; it may have several."""

    def make(line: Any, **options: Any) -> Any:
        transport = paramiko.Transport(line, **options)
        kinds = {key.get_name() for key in trust.known(*known_as)}
        if kinds and target.name not in trust.pins:
            security, usual = transport.get_security_options(), transport.get_security_options().key_types
            names = {"ssh-rsa": "rsa-sha2-512"}
            first = [kind for kind in usual if kind in kinds or kind in {names.get(k) for k in kinds}]
            security.key_types = (*first, *(kind for kind in usual if kind not in first))
        return transport

    return make


def _reach(address: str, port: int) -> socket.socket:
    """A TCP connection that notices when the other end is gone."""
    try:
        line = socket.create_connection((address, port), CONNECT_S)
    except (socket.gaierror, UnicodeError):  # the latter for a label that is empty or too long
        raise HostError(
            f"its address {address!r} is not known: correct the platform file, or name resolution"
        ) from None
    except TimeoutError:
        raise HostError(f"does not answer at {entry(address, port)} within {CONNECT_S:.0f} s: {LOOK}") from None
    except OSError as error:
        raise HostError(
            f"cannot be reached at {entry(address, port)} ({error.strerror}): is it on, does sshd run?"
        ) from None
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_S * 1000)
    return line


def _keys(target: Target, configured: list[str]) -> list[str]:
    """Files of private keys to log in with. Of those in ``~/.ssh/config``, OpenSSH skips what it cannot read, too."""
    if target.key is None:
        return [file for file in configured if not _unreadable(file)]
    if why := _unreadable(target.key):
        raise HostError(f"the key {target.key} cannot be read: {why}")
    return [target.key]


def _of_agent(files: list[str]) -> Any:
    """The key of the first of the files, or of those that users have, that the agent has: by its public half, which is
    in the file, or beside it as ``FILE.pub``. For where only keys of files are to be used; None: there is none."""
    named = files or [str(Path("~/.ssh", name).expanduser()) for name in USUAL_KEYS]
    public = [line.split()[1] for file in named for line in _public(file)]
    with suppress(paramiko.SSHException, OSError):
        held = {key.get_base64(): key for key in paramiko.Agent().get_keys()}
        return next((held[half] for half in public if half in held), None)
    return None


def _public(file: str) -> list[str]:
    """Lines of public keys."""
    place = Path(file if file.endswith(".pub") else f"{file}.pub")
    if _unreadable(str(place)):
        return []
    return [line for line in place.read_text(encoding="utf-8").splitlines() if len(line.split()) > 1]


def _unreadable(file: str) -> str:
    """Why there is no key in a file; empty where there may be one."""
    try:
        Path(file).read_text(encoding="utf-8")
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        return "it is no text"
    return ""


def _refused(target: Target, user: str | None, error: Exception, transport: Any) -> str:
    """Why there was no logging in. paramiko reads a key file as one kind after the other, and tells of the last."""
    tried, why = transport.auth_handler is not None, str(error)
    if target.key and not tried:
        return f"the key {target.key} cannot be read ({why}): if it is encrypted, use --ask-password"
    if tried and not isinstance(error, paramiko.AuthenticationException):
        why = "Authentication failed"
    who = target.user or user or getpass.getuser()
    wrong = f"the key {target.key} is not taken" if target.key else "no key of the agent or of ~/.ssh is taken"
    more = "" if target.user else ", or write user=NAME into the platform file"
    return f"does not let {who} in ({why.rstrip('.')}): {wrong}; put the public key there with ssh-copy-id{more}"

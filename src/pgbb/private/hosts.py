"""Several processes, one fit: who takes part, and the little that they say to each other.

Connections form a star around process 0. They carry bytes, never pickled
objects: what process 0 says to all, and sums of whole numbers over all
processes, which are exact and so the same in any order. Nothing here reads
records; what is summed is private until process 0 has added noise. A process
that fails says so before it closes; one that is gone leaves a closed
connection. Either way the others end, with an error that says who and why.
"""

import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgbb.errors import InvalidValue, PgbbError
from pgbb.private.cluster import Hosts

__all__ = ["HostLost", "Hosts", "Together", "connected"]

KEY = "PGBB_HOSTS_KEY"
"""Environment variable with a secret that all processes share: where it is set, nobody else is let in."""

_GREETING = b"pgbb hosts 1"
_DATA, _FAILED, _STOPPED = b"D", b"F", b"S"
_HEAD = struct.Struct(">cQ")
_LARGEST = 2**32  # bytes of a message
_SHORTEST_KEY = 16
_HANDSHAKE = 10.0  # seconds that a process has to show that it belongs here
_UNHEARD = 45  # seconds after which a machine that answers nothing is gone
_UNASKED = 2**16  # bytes that a system takes in for a process that does not read yet


class HostLost(PgbbError):
    """Another process of the fit, or the connection to it, is gone: nothing that an answer can have caused."""


@contextmanager
def connected(hosts: Hosts) -> "Iterator[Together]":
    """The processes of one fit, joined. An error in the block is told to the others; then connections are closed."""
    together = Together(hosts)
    try:
        together._join()
        yield together
    except BaseException as error:
        together._tell(error)
        raise
    finally:
        together._close()


class Together:
    """The connections of one fit; process 0 has one to every other process, and the others one to it."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.process, self.processes = hosts, hosts.process, hosts.processes
        self._peers: dict[int, socket.socket] = {}
        self._failed: BaseException | None = None

    @property
    def leads(self) -> bool:
        """Whether this is process 0: it draws the noise, and holds the ledger, the checkpoint and the release."""
        return self.process == 0

    # What is said ----------------------------------------------------------------------------------------------------

    def first(self, data: bytes) -> bytes:
        """What process 0 gives here, in all processes."""
        if not self.leads:
            return self._receive(0)
        for peer in self._peers:
            self._send(peer, data)
        return data

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum over all processes of whole numbers, without rounding."""
        given = np.ascontiguousarray(values, dtype="<i8")
        asked = given.nbytes > _UNASKED  # else what waits for a busy process 0 would look like a dead connection
        if not self.leads:
            if asked:
                self._receive(0)
            self._send(0, given.tobytes())
            return self._numbers(0, given)
        whole = given.astype(np.int64)
        for peer in self._peers:
            if asked:
                self._send(peer, b"")
            whole = whole + self._numbers(peer, given)
        self.first(whole.astype("<i8").tobytes())
        return whole

    def _numbers(self, peer: int, like: NDArray[np.int64]) -> NDArray[np.int64]:
        data = self._receive(peer)
        if len(data) != like.nbytes:
            raise PgbbError(
                f"process {peer} answers another question than process {self.process} asks. Run the same version of "
                "pgbb and its packages everywhere."
            )
        return np.frombuffer(data, "<i8").reshape(like.shape).astype(np.int64)

    def agree(self, facts: Mapping[str, object], *, copies: Mapping[str, str] | None = None) -> None:
        """Go on if all processes give the same facts, which are public; otherwise say who differs in what.

        So do `copies`, digests of files by name, but these are not said: cells decide them.
        """
        whole = [dict(facts), dict(copies or {})]
        given = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__).encode()
        if not self.leads:
            self._send(0, given)
            verdict = self.first(b"").decode()
        else:
            own, files = json.loads(given)
            said = {peer: json.loads(self._receive(peer)) for peer in self._peers}
            differ = [
                f"{name} is {_short(own.get(name))} in process 0 and {_short(other.get(name))} in process {peer}"
                for peer, (other, _) in said.items()
                for name in sorted({*own, *other})
                if own.get(name) != other.get(name)
            ]
            for peer, (_, others) in said.items():
                odd = [name for name in sorted({*files, *others}) if files.get(name) != others.get(name)]
                if odd:
                    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
                    differ.append(f"process {peer} has another copy of {_short(odd[0])}{more} than process 0")
            verdict = "; ".join(differ)
            self.first(verdict.encode())
        if verdict:
            raise InvalidValue(
                f"the processes disagree: {verdict}. Start all of them with the same version, data and arguments."
            )

    # For callbacks inside a compiled loop, which must not raise -------------------------------------------------------

    def first_of(self, values: ArrayLike) -> NDArray[np.generic]:
        """An array as process 0 has it. An error is kept for `check`, and what follows it is of no use."""
        own = np.asarray(values)
        return self._kept(own, lambda: np.frombuffer(self.first(own.tobytes()), own.dtype).reshape(own.shape))

    def total_of(self, values: ArrayLike) -> NDArray[np.generic]:
        """The sum over processes of an array of 32-bit whole numbers, modulo 2³²; errors as in `first_of`."""
        own = np.asarray(values)
        return self._kept(own, lambda: self.total(own.astype(np.int64)).astype(own.dtype))

    def _kept(self, own: NDArray[np.generic], ask: Callable[[], NDArray[np.generic]]) -> NDArray[np.generic]:
        if self._failed is None:
            try:
                return ask()
            except BaseException as error:
                self._failed = error
        return np.zeros_like(own)

    def check(self) -> None:
        """Raise the error of a callback, if there was one."""
        if self._failed is not None:
            raise self._failed

    # Messages --------------------------------------------------------------------------------------------------------

    def _send(self, peer: int, data: bytes) -> None:
        try:
            self._peers[peer].sendall(_HEAD.pack(_DATA, len(data)) + data)
        except (OSError, KeyError):
            self._receive(peer, last=True)  # it may have said why
            raise self._lost(peer) from None

    def _receive(self, peer: int, *, last: bool = False) -> bytes:
        """The next message; with `last` only one that says how the peer ended counts."""
        while True:
            try:
                kind, size = _HEAD.unpack(_exactly(self._peers[peer], _HEAD.size))
                if size > _LARGEST:
                    raise OSError
                data = _exactly(self._peers[peer], size)
            except TimeoutError:
                raise HostLost(
                    f"process {peer} has not answered for {self.hosts.patience:g} s, and counts as lost. {_RESTART}"
                ) from None
            except (OSError, KeyError):
                raise self._lost(peer) from None
            if kind == _STOPPED:
                raise HostLost(f"process {peer} was stopped: {data.decode()} {_RESTART}")
            if kind == _FAILED:
                raise PgbbError(f"process {peer} ended: {data.decode()}")
            if not last:
                return data

    def _lost(self, peer: int) -> HostLost:
        return HostLost(
            f"process {peer} of {self.processes} is gone, or the connection to it: the fit cannot go on. {_RESTART}"
        )

    def _tell(self, error: BaseException) -> None:
        """Say why this process ends. Only pgbb's own messages are passed on: others might quote records."""
        outside = isinstance(error, KeyboardInterrupt | HostLost)
        text = str(error) if isinstance(error, PgbbError) else f"{type(error).__name__}, see its own output."
        for peer in self._peers:
            with contextlib.suppress(OSError):
                data = text.encode()
                self._peers[peer].settimeout(5.0)
                self._peers[peer].sendall(_HEAD.pack(_STOPPED if outside else _FAILED, len(data)) + data)

    def _close(self) -> None:
        """Close, after a second in which the others may read what was said last: unread messages would undo it."""
        until = time.monotonic() + 1.0
        for connection in self._peers.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        for connection in self._peers.values():
            with contextlib.suppress(OSError):
                connection.settimeout(max(until - time.monotonic(), 0.001))
                while time.monotonic() < until and connection.recv(2**16):
                    pass
            connection.close()
        self._peers = {}

    # Joining ---------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if self.processes == 1:
            return
        until = time.monotonic() + self.hosts.wait
        key, (host, port) = _key(), self.hosts.address
        if not key and not _loopback(host):
            raise InvalidValue(
                f"{KEY} is not set, and others may reach {host}: whoever joins learns who is in which batch. Set it in "
                f"all processes, to the same {_SHORTEST_KEY} or more secret letters."
            )
        if not self.leads:
            self._peers[0] = self._call(until, key)
            return
        bind = host if _loopback(host) else ""
        both = not bind and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in bind else socket.AF_INET
        try:
            server = socket.create_server((bind, port), family=family, backlog=self.processes, dualstack_ipv6=both)
        except OSError as error:
            raise PgbbError(
                f"process 0 cannot listen at port {port}: {error.strerror}. Take another port in the coordinator."
            ) from None
        with server:
            while len(self._peers) < self.processes - 1:
                server.settimeout(max(until - time.monotonic(), 0.001))
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    missing = sorted({*range(1, self.processes)} - {*self._peers})
                    raise HostLost(
                        f"process {', '.join(map(str, missing))} of {self.processes} did not join within "
                        f"{self.hosts.wait:g} s. Start all processes, with the same coordinator."
                    ) from None
                self._admit(connection, key)

    def _admit(self, connection: socket.socket, key: bytes) -> None:
        """Take a process in that knows the key, and prove to it that this one does; anybody else is left out."""
        connection.settimeout(_HANDSHAKE)
        until, nonce = time.monotonic() + _HANDSHAKE, secrets.token_bytes(32)
        try:
            connection.sendall(_GREETING + nonce)
            reply = _exactly(connection, 32 + 8 + 32, until)
        except OSError:
            connection.close()
            return
        theirs, (process, processes), proof = reply[:32], struct.unpack(">II", reply[32:40]), reply[40:]
        known = hmac.compare_digest(proof, hmac.digest(key, b"join" + nonce + reply[:40], "sha256"))
        wrong = (
            f"{KEY} is not the same in all processes"
            if not known
            else f"process {process} was told of {processes} processes, process 0 of {self.processes}"
            if processes != self.processes
            else f"there are two processes {process}"
            if process in self._peers or not 0 < process < processes
            else ""
        )
        mine = hmac.digest(key, b"welcome" + theirs + nonce, "sha256") if known else bytes(32)
        with contextlib.suppress(OSError):
            connection.sendall(mine + _HEAD.pack(_FAILED if wrong else _DATA, len(wrong.encode())) + wrong.encode())
        if not wrong:
            self._peers[process] = _kept_alive(connection, self.hosts.patience)
            return
        connection.close()
        if known:  # a stranger is turned away; a process of this fit that was told something else ends it
            raise InvalidValue(f"{wrong}. Give all processes the same coordinator and number, and each its own.")

    def _call(self, until: float, key: bytes) -> socket.socket:
        """A connection to process 0, which may start later than this one."""
        while True:
            try:
                connection = socket.create_connection(self.hosts.address, timeout=_HANDSHAKE)
                break
            except OSError:
                if time.monotonic() > until:
                    raise HostLost(
                        f"process 0 was not reached at {self.hosts.coordinator} within {self.hosts.wait:g} s. Start "
                        "it, or correct the address."
                    ) from None
                time.sleep(0.1)
        try:
            until = max(until, time.monotonic() + 1.0)
            greeting = _exactly(connection, len(_GREETING) + 32, until)
            nonce, own = greeting[len(_GREETING) :], secrets.token_bytes(32)
            reply = own + struct.pack(">II", self.process, self.processes)
            connection.sendall(reply + hmac.digest(key, b"join" + nonce + reply, "sha256"))
            proof = _exactly(connection, 32, until)
            kind, size = _HEAD.unpack(_exactly(connection, _HEAD.size, until))
            said = _exactly(connection, min(size, 1000), until)
        except OSError:
            connection.close()
            raise HostLost(f"what answers at {self.hosts.coordinator} is no process of this fit.") from None
        known = hmac.compare_digest(proof, hmac.digest(key, b"welcome" + own + nonce, "sha256"))
        if kind != _DATA or not known or not greeting.startswith(_GREETING):
            connection.close()
            why = said.decode() if known else f"{KEY} is not the same in all processes"  # a stranger is not quoted
            raise InvalidValue(f"process 0 refused: {why}. Correct it.")
        return _kept_alive(connection, self.hosts.patience)


_RESTART = "Start all processes again, with the same command."


def _key() -> bytes:
    """The shared secret; empty where none is set."""
    key = os.environ.get(KEY, "").encode()
    if key and len(key) < _SHORTEST_KEY:
        raise InvalidValue(f"{KEY} is too short: take at least {_SHORTEST_KEY} letters, such as 32 random ones.")
    return key


def _loopback(host: str) -> bool:
    """Whether an address is of this machine alone; a name other than localhost may be anything."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _exactly(connection: socket.socket, size: int, until: float | None = None) -> bytes:
    """So many bytes: all of them by a time, or none later than the connection's timeout after another."""
    data = bytearray()
    while len(data) < size:
        if until is not None:
            connection.settimeout(max(until - time.monotonic(), 0.001))
        part = connection.recv(min(size - len(data), 2**20))
        if not part:
            raise ConnectionResetError
        data += part
    return bytes(data)


def _kept_alive(connection: socket.socket, patience: float) -> socket.socket:
    """Small messages go at once, and a machine that is off or cut off is noticed within a minute.

    Probes notice it while nothing is under way, and the last option while something is.
    """
    connection.settimeout(patience)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 1000 * _UNHEARD}
    for name, value in options.items():
        with contextlib.suppress(AttributeError, OSError):  # not every system has them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"

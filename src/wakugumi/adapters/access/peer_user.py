"""Which user of this machine is at the other end of a connection? (SPEC O1) The kernel knows.

TCP: `NETLINK_SOCK_DIAG` names the owner of the socket with exactly this pair of addresses. Only a socket that a process
has open counts, established or with its own half closed (as `nc -N` does after the input): of a closed one the kernel
reports user 0, who is root, and no inode. The pair belongs
to this connection as long as its own end is connected, so that is checked before and after the question.

Unix sockets and socketpairs: `SO_PEERCRED`.

A program that forwards connections (a proxy, `ssh -L`) is itself the peer: its user counts, not the user behind it.
A user of another user namespace has no number here; the kernel reports the overflow user, who is nobody.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import threading
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

SockAddress: TypeAlias = Any
"""Address as `getsockname` has it: a tuple with host and port, or the path of a Unix socket."""
_NETLINK: Final[int | None] = getattr(socket, "AF_NETLINK", None)
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
"""Type of a question about a socket, and of its answer."""
_REQUEST: Final = 1
_ANY_COOKIE: Final = 0xFFFF_FFFF
_CONNECTED: Final = frozenset({1, 4, 5})
"""States: established; its half is closed, confirmed by our end or not yet (FIN-WAIT-1 and -2)."""
_MESSAGE: Final = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence number, port."""
_QUESTION: Final = struct.Struct("=BBBBI")
"""The first part of inet_diag_req_v2: family, protocol, extensions, padding, states."""
_PAIR: Final = struct.Struct("!2s2s16s16s")
"""The first part of inet_diag_sockid: both ports and both addresses, in network order."""
_WHICH: Final = struct.Struct("=III")
"""The rest of inet_diag_sockid: interface, cookie in two parts."""
_ANSWER: Final = struct.Struct("=BBBB36s12sIIIII")
"""inet_diag_msg: family, state, timer, retransmits, pair, which; expires, receive and send queue, user, inode."""
_CREDENTIALS: Final = struct.Struct("=iII")
"""ucred: process, user, group."""
_READS_MAX: Final = 8
"""Messages that are read for one answer: the kernel answers at once, so others are leftovers of a failed question."""
_READ_BYTES: Final = 8192
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""Begin of an IPv6 address that stands for an IPv4 one."""


class ConnectedSocket(Protocol):
    """A socket, or that of a transport: `transport.get_extra_info("socket")`."""

    @property
    def family(self) -> int: ...
    @property
    def type(self) -> int: ...
    @property
    def proto(self) -> int: ...
    def fileno(self) -> int: ...


def peer_uid(sock: ConnectedSocket) -> int | None:
    """User id of the process at the other end, if this machine's kernel vouches for it. None for a peer on another
    machine, in another network or user namespace, or that has closed its end; and on systems other than Linux.

    Never blocks, some 10 µs; any thread may call it. Ask when the connection is accepted: the answer belongs to that
    moment.
    """
    if _NETLINK is None or sock.fileno() < 0:
        return None
    try:  # A transport's socket may remember its addresses; this one asks for them.
        own = socket.socket(sock.family, sock.type, sock.proto, sock.fileno())
    except OSError:
        return None
    try:
        if own.family == socket.AF_UNIX:
            uid = _CREDENTIALS.unpack(own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
        elif own.family in {socket.AF_INET, socket.AF_INET6} and own.type == socket.SOCK_STREAM:
            here, there = own.getsockname(), own.getpeername()
            uid = _kernel.owner_of(there, here)
            own.getpeername()  # Raises if the connection has ended meanwhile: its pair may be another's then.
        else:
            return None
    except (OSError, ValueError, struct.error):
        return None
    finally:
        own.detach()
    return None if uid == _overflow_uid() else uid


def is_local(sockname: SockAddress, peername: SockAddress) -> bool:
    """Do the addresses of a connection say that both ends are on this machine? No proof: only `peer_uid` is one."""
    if not isinstance(sockname, tuple) or not isinstance(peername, tuple):
        return True  # A Unix socket.
    try:
        here, there = _ip(sockname), _ip(peername)
    except ValueError:
        return False
    return here.is_loopback or there.is_loopback or (here == there and _scope(sockname) == _scope(peername))


def groups_of(uid: int) -> frozenset[int]:
    """Ids of the groups of a user; none for an unknown one. May ask a directory in the network: not for the loop."""
    import pwd  # Not on every system.

    try:
        user = pwd.getpwuid(uid)
        return frozenset(os.getgrouplist(user.pw_name, user.pw_gid))
    except (KeyError, OverflowError, OSError):
        return frozenset()


class _Kernel:
    """One netlink socket per process, made with the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._number = 0

    def after_fork(self) -> None:
        """The child makes a socket of its own: on a shared one, each would read the other's answers."""
        self._lock = threading.Lock()
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def owner_of(self, end: SockAddress, other: SockAddress) -> int | None:
        """User id of the owner of the socket from `end` to `other`. Raises OSError if the kernel does not answer."""
        family, pair = _pair(end, other)
        which = _WHICH.pack(_scope(end), _ANY_COOKIE, _ANY_COOKIE)
        body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, sum(1 << state for state in _CONNECTED)) + pair + which
        with self._lock:
            try:
                answer = self._ask(body)
            except OSError:
                if self._socket is not None:
                    self._socket.close()
                self._socket = None
                raise
        return _read_owner(answer, pair) if answer else None

    def _ask(self, body: bytes) -> bytes:
        """The answer's content; empty for an error, such as an unknown pair."""
        if self._socket is None:
            self._socket = socket.socket(_NETLINK or 0, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _SOCK_DIAG)
        self._number = (self._number + 1) & 0xFFFF_FFFF
        self._socket.sendto(
            _MESSAGE.pack(_MESSAGE.size + len(body), _BY_FAMILY, _REQUEST, self._number, 0) + body, (0, 0)
        )
        for _ in range(_READS_MAX):
            data, sender = self._socket.recvfrom(_READ_BYTES)
            size, kind, _, number, _ = _MESSAGE.unpack_from(data)
            if sender[0] == 0 and number == self._number:  # Port 0 is the kernel.
                return data[_MESSAGE.size : size] if kind == _BY_FAMILY else b""
        raise BlockingIOError


def _read_owner(answer: bytes, pair: bytes) -> int | None:
    family, state, _, _, found, _, _, _, _, uid, inode = _ANSWER.unpack_from(answer)
    if family == socket.AF_INET6:
        found = _unmapped(found)
    # For a missing pair the kernel names a listener on the port: its pair and state are others.
    if found != pair or state not in _CONNECTED or inode == 0:
        return None
    return int(uid)


def _pair(end: SockAddress, other: SockAddress) -> tuple[int, bytes]:
    """Family, and ports and addresses as the kernel has them. Raises ValueError."""
    ips = _ip(end), _ip(other)
    if ips[0].version != ips[1].version:
        raise ValueError("the ends have different families")
    ports = (int(end[1]).to_bytes(2, "big"), int(other[1]).to_bytes(2, "big"))
    family = socket.AF_INET if ips[0].version == 4 else socket.AF_INET6
    return family, _PAIR.pack(*ports, ips[0].packed, ips[1].packed)


def _unmapped(pair: bytes) -> bytes:
    source, target, one, two = _PAIR.unpack(pair)
    if one.startswith(_MAPPED) and two.startswith(_MAPPED):
        one, two = one[len(_MAPPED) :], two[len(_MAPPED) :]
    return _PAIR.pack(source, target, one, two)


def _ip(address: SockAddress) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(address[0].partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _scope(address: SockAddress) -> int:
    """Interface of a link-local address, else 0."""
    return int(address[3]) if len(address) > 3 else 0


@lru_cache(1)
def _overflow_uid() -> int:
    with contextlib.suppress(OSError, ValueError), open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
        return int(file.read())
    return 65534


_kernel: Final = _Kernel()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kernel.after_fork)

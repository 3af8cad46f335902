"""A management controller: its socket, its sessions, and the commands that it knows."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.bmc import DEVICES, Machine
from tailtap.bmc.packets import (
    HEAD,
    HEAD_15,
    NO_AUTHENTICATION,
    RMCP,
    RMCP_PLUS,
    Kind,
    Request,
    frame,
    frame_15,
)
from tailtap.bmc.serving import MOST_PASSWORD_BYTES, BmcEvent, shown
from tailtap.bmc.session import (
    ALGORITHMS,
    OPERATOR,
    SUITE,
    Attempts,
    Completion,
    Refusal,
    Session,
    network_of,
    refusal,
    suite_of,
)

MOST_BYTES = 1024
"""No message of ours is longer, nor one that we know."""
MOST_OPENING, OPENING_NS = 256, 5 * 10**9
"""Sessions whose client has not proved anything yet. For a new one the oldest has to go of the
host that has most: one that floods keeps out itself."""
MOST_SESSIONS, IDLE_NS = 64, 60 * 10**9
"""Sessions that are open. One that is idle for so long is closed, as the specification has it."""
LOOK_SECONDS = 1.0
ACTIONS = {0: "off", 1: "on", 2: "cycle", 3: "reset", 5: "shutdown"}
"""What can be asked of the chassis; IPMI 2.0, table 28-4."""
OF_RUNNING = ("cycle", "reset", "shutdown")
NAME_BLOCK, NAME_BLOCKS = 16, 16
FAULT = 0x10
"""Power control fault; table 28-3."""
VERSION = bytes([1, 0, 2])
CAPABILITIES = bytes([1, 0b10000000, 0b00000100, 0b00000010, 0, 0, 0, 0])
"""Channel 1; sessions of IPMI 2.0 only, of users with names and passwords; table 22-15."""

Tell = Callable[[BmcEvent], None]
"""Is told what happens. Called from several threads."""


class Controller:
    """The controller of one machine. Each has a socket and a thread of its own."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        listen: tuple[str, int],
        users: Mapping[str, str],
        tell: Tell,
        number: int = 1,
    ) -> None:
        """Listen for who controls `machine`; nothing is answered before `start`.

        `listen` is an IP address and a UDP port (0: a free one); `users` are passwords by name.
        `number` is the device id that the controller tells. Raises `MachineError`.
        """
        self.name, self.machine = name, machine
        self._number = number
        self.uuid = uuid.uuid5(uuid.NAMESPACE_OID, f"tailtap:{name}")
        self._users = {user.encode(): password.encode() for user, password in users.items()}
        self._nobody = os.urandom(MOST_PASSWORD_BYTES)
        self._tell, self._answered, self._reported = tell, Attempts(), Attempts()
        self._sessions: dict[int, tuple[Session, int]] = {}
        self._looked = 0
        self._working: threading.Thread | None = None
        self._fault = False
        self.received = self.damaged = 0
        try:
            family = socket.getaddrinfo(*listen, flags=socket.AI_NUMERICHOST)[0][0]
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            self._socket.bind(listen)
        except OSError as error:
            raise MachineError(
                f"{name} cannot listen on {shown(listen)}: {error.strerror}: change its `listen`"
            ) from error
        self._socket.setblocking(False)
        self.address = shown(self._socket.getsockname())
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._serve, name=f"bmc {name}")

    def send(self, packet: bytes, address: tuple[Any, ...]) -> None:
        """Send a packet, without waiting: what finds no room is lost, as on a net."""
        with contextlib.suppress(OSError):
            self._socket.sendto(packet, address)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more; returns when the machine has done what it was told to."""
        os.eventfd_write(self._stop, 1)
        if self._thread.ident is not None:
            self._thread.join()
        if self._working is not None:
            self._working.join()
        self._socket.close()
        os.close(self._stop)

    def _serve(self) -> None:
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        waiting.register(self._stop, select.POLLIN)
        while True:
            # Without a session nothing has to be looked after: no wake-up.
            ready = waiting.poll(LOOK_SECONDS * 1e3 if self._sessions else None)
            if (self._stop, select.POLLIN) in ready:
                return
            with contextlib.suppress(OSError):  # of a packet that was sent, by ICMP
                packet, address = self._socket.recvfrom(MOST_BYTES)
                self.receive(packet, address)
            self._look_after()

    def receive(self, packet: bytes, address: tuple[Any, ...]) -> None:
        """Answer a packet from `address`. Whatever is in it, nothing is raised."""
        self.received += 1
        if len(packet) < HEAD or packet[0] != RMCP[0] or packet[2:4] != RMCP[2:]:
            self.damaged += 1
        elif packet[4] == NO_AUTHENTICATION:  # a client asks whether we speak 2.0
            self._answer_outside(packet[HEAD_15:], address, frame_15)
        elif packet[4] != RMCP_PLUS:
            self.damaged += 1
        else:
            self._route(packet, address)

    def _route(self, packet: bytes, address: tuple[Any, ...]) -> None:
        kind, number = packet[5] & 0x3F, struct.unpack_from("<I", packet, 6)[0]
        if kind == Kind.OPEN_REQUEST:
            self._open(packet[HEAD:], address)
        elif kind == Kind.MESSAGE and number == 0:
            self._answer_outside(packet[HEAD:], address, _framed)
        else:
            if kind in (Kind.RAKP1, Kind.RAKP3):
                number = int.from_bytes(packet[20:24], "little")
            found = self._sessions.get(number)
            if found is not None and found[0].address == address:
                found[0].receive(packet)

    def _answer_outside(
        self, message: bytes, address: tuple[Any, ...], framed: Callable[[bytes], bytes]
    ) -> None:
        """Answer what may be asked without a session: what can be spoken here."""
        request = Request.read(message)
        if request is None:
            self.damaged += 1
            return
        data = request.data
        match request.function, request.command:
            case 6, 0x38 if len(data) == 2 and data[0] & 0x8F == 0x8E:
                known = CAPABILITIES
            case 6, 0x54 if len(data) == 3:
                known = _suites(data[2])
            case _:
                return
        self.send(framed(request.answer(0, known)), address)

    def _open(self, request: bytes, address: tuple[Any, ...]) -> None:
        if len(request) < 32:
            self.damaged += 1
            return
        now, why = time.monotonic_ns(), None
        opening = [number for number, (one, _) in self._sessions.items() if not one.established]
        if not suite_of(request[8:32]):
            why = Refusal.NO_SUITE
        elif len(self._sessions) - len(opening) >= MOST_SESSIONS:
            why = Refusal.NO_ROOM
        if why is not None:
            self.send(frame(Kind.OPEN_RESPONSE, refusal(request, why)), address)
            return
        if len(opening) >= MOST_OPENING:
            self._forget(opening)
        number = 0
        while number == 0 or number in self._sessions:
            number = int.from_bytes(os.urandom(4), "little")
        self._sessions[number] = (Session(self, address, request, number), now)

    def _forget(self, opening: Sequence[int]) -> None:
        """Drop the oldest session that is being opened by whoever opens most of them."""
        hosts = {number: network_of(self._sessions[number][0].address[0]) for number in opening}
        most = Counter(hosts.values()).most_common(1)[0][0]
        del self._sessions[next(number for number in opening if hosts[number] == most)]

    def _look_after(self) -> None:
        """Drop sessions that are not opened in time, and those that are idle."""
        now = time.monotonic_ns()
        if now - self._looked < LOOK_SECONDS * 1e9:
            return
        self._looked = now
        for number, (session, since) in list(self._sessions.items()):
            if now - since > (IDLE_NS if session.established else OPENING_NS):
                del self._sessions[number]
                if session.challenged:
                    self.login_failed(session, "it gave up: the password is wrong, or it went away")

    # What sessions ask.

    def password_of(self, name: bytes) -> bytes:
        """The password of the user `name`; without such a user, one that nobody knows."""
        return self._users.get(name, self._nobody)

    def login_failed(self, session: Session, why: str) -> bool:
        """Tell it, unless too many have failed; whether it is to be answered.

        What is answered does not depend on which users there are. What is told does: names that
        are made up are told as those of one user.
        """
        user, host, now = session.username, session.address[0], time.monotonic_ns()
        known = user in self._users
        left = self._reported.counts(user if known else b"", host, now)
        if left >= 0:
            why = why if known else "there is no such user"
            self._told("refused", session, why=why, muted=left == 0)
        return self._answered.counts(user, host, now) >= 0

    def login_succeeded(self, session: Session) -> None:
        for attempts in (self._answered, self._reported):
            attempts.succeeded(session.username, session.address[0])
        self._sessions[session.number] = (session, time.monotonic_ns())

    def close_session(self, session: Session) -> None:
        self._sessions.pop(session.number, None)

    # The commands: each has its data, and returns a completion code and data.

    def ask(self, request: Request, session: Session) -> tuple[int, bytes]:
        """What a request of an open session is answered."""
        self._sessions[session.number] = (session, time.monotonic_ns())
        asked, data = (request.function, request.command), request.data
        if asked in ((0, 2), (0, 8)) and session.privilege < OPERATOR:
            return Completion.PRIVILEGE, b""
        match asked:
            case 0, 1:
                return self._chassis_status()
            case 0, 2:
                return self._control_chassis(data, session)
            case 0, 8:
                return self._set_boot_options(data, session)
            case 0, 9:
                return self._boot_options(data)
            case 6, 0x01:  # which controller this is: its number, and no manufacturer
                return Completion.DONE, bytes([self._number, 0]) + VERSION + bytes(6)
            case 6, 0x37:  # it follows from the machine's name
                return Completion.DONE, self.uuid.bytes_le
            case 6, 0x54:
                if len(data) != 3:
                    return Completion.LENGTH, b""
                return Completion.DONE, _suites(data[2])
            case 6, 0x59:
                return self._system_info(data)
        return Completion.UNKNOWN, b""

    def _chassis_status(self) -> tuple[int, bytes]:
        """Whether the machine runs, and whether it did what it was last told."""
        try:
            running = self.machine.status() == "on"
        except MachineError as error:
            self._failed("status", error)
            return Completion.FAILED, b""
        return Completion.DONE, bytes([running | (FAULT if self._fault else 0), 0, 0])

    def _control_chassis(self, data: bytes, session: Session) -> tuple[int, bytes]:
        """Let the machine do it; the answer does not wait for that."""
        if len(data) != 1:
            return Completion.LENGTH, b""
        action = ACTIONS.get(data[0] & 0x0F)
        if action is None:
            return Completion.FIELD, b""
        if self._working is not None and self._working.is_alive():
            return Completion.BUSY, b""
        return self._begin(action, session), b""

    def _boot_options(self, data: bytes) -> tuple[int, bytes]:
        """The boot flags; no other parameter is known."""
        if len(data) != 3:
            return Completion.LENGTH, b""
        if data[0] & 0x7F != 5:
            return Completion.UNKNOWN_PARAMETER, b""
        try:
            device = DEVICES[self.machine.boot_device()]
        except MachineError as error:
            self._failed("boot device", error)
            return Completion.FAILED, b""
        # Valid, and for all boots: it stays until another one is set.
        flags = 0b11000000 if device else 0
        return Completion.DONE, bytes([1, 5, flags, device << 2, 0, 0, 0])

    def _set_boot_options(self, data: bytes, session: Session) -> tuple[int, bytes]:
        """Take the device of the boot flags; what goes before and after them is acknowledged."""
        if not data:
            return Completion.LENGTH, b""
        parameter = data[0] & 0x7F
        if parameter in (0, 3, 4):  # set in progress, which flags are cleared, acknowledgements
            return Completion.DONE, b""
        if parameter != 5:
            return Completion.UNKNOWN_PARAMETER, b""
        if len(data) != 6:
            return Completion.LENGTH, b""
        devices = {number: device for device, number in DEVICES.items()}
        device = devices.get((data[2] >> 2) & 0x0F)
        if device is None:
            return Completion.FIELD, b""
        try:
            self.machine.set_boot_device(device)
        except MachineError as error:
            self._failed("boot device", error)
            return Completion.FAILED, b""
        self._told("boot", session, device=device)
        return Completion.DONE, b""

    def _system_info(self, data: bytes) -> tuple[int, bytes]:
        """The machine's name, in blocks of 16 bytes; IPMI 2.0, 22.14a."""
        if len(data) != 4:
            return Completion.LENGTH, b""
        if data[1] != 2 or data[2] >= NAME_BLOCKS:
            return Completion.UNKNOWN_PARAMETER, b""
        name = self.name.encode()[: NAME_BLOCK * NAME_BLOCKS - 2]
        # Before the name: UTF-8, and its length.
        whole = bytes([1, len(name)]) + name
        block = whole[data[2] * NAME_BLOCK :][:NAME_BLOCK].ljust(NAME_BLOCK, b"\0")
        return Completion.DONE, bytes([0x11, data[2]]) + block

    def _begin(self, action: str, session: Session) -> int:
        """Let the machine begin, in a thread of its own; the completion code."""
        try:
            if action in OF_RUNNING and self.machine.status() == "off":
                return Completion.STATE
        except MachineError as error:
            self._failed(action, error)
            return Completion.FAILED
        self._working = threading.Thread(target=self._do, args=(action, session), name=self.name)
        self._working.start()
        return 0

    def _do(self, action: str, session: Session) -> None:
        try:
            getattr(self.machine, action)()
        except MachineError as error:
            self._fault = True
            self._failed(action, error)
        else:
            self._fault = False
            self._told("power", session, action=action)

    def _failed(self, action: str, error: MachineError) -> None:
        self._told("failed", action=action, why=str(error))

    def _told(self, event: Any, session: Session | None = None, **more: Any) -> None:
        if session is not None:
            more["user"] = session.username.decode(errors="replace")
            more["address_of"] = session.address[0]
        self._tell(BmcEvent(event=event, machine=self.name, **more))


def _framed(message: bytes) -> bytes:
    return frame(Kind.MESSAGE, message)


def _suites(index: int) -> bytes:
    """Channel 1 and its cipher suites from 16 times `index` bytes on; IPMI 2.0, 22.15.1.

    Suite 17 is all: with RAKP-HMAC-SHA256, HMAC-SHA256-128 and AES-CBC-128, each with its tag.
    """
    suite = bytes([0xC0, SUITE, ALGORITHMS[0], 0x40 | ALGORITHMS[1], 0x80 | ALGORITHMS[2]])
    return b"\x01" + (suite if index & 0x3F == 0 else b"")

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
from collections.abc import Callable, Mapping
from typing import Any

from pyghmi.ipmi.bmc import Bmc
from pyghmi.ipmi.private.session import _checksum

from tailtap.bmc import DEVICES, Machine
from tailtap.bmc.attempts import Attempts
from tailtap.bmc.configuration import shown
from tailtap.bmc.session import (
    ALGORITHMS,
    OPERATOR,
    SUITE,
    Completion,
    Refusal,
    Session,
    refusal,
    suite_of,
)
from tailtap.errors import MachineError

RMCP = b"\x06\x00\xff\x07"
"""How a packet of IPMI begins."""
OPEN_REQUEST, OPEN_RESPONSE, RAKP1, RAKP3 = 0x10, 0x11, 0x12, 0x14
MOST_BYTES = 1024
"""No message of ours is longer, nor one that we know."""
MOST_OPENING, OPENING_NS = 256, 5 * 10**9
"""Sessions whose client has not proved anything yet. The oldest has to go for a new one."""
MOST_SESSIONS, IDLE_NS = 64, 60 * 10**9
"""Sessions that are open. One that is idle for so long is closed, as the specification has it."""
LOOK_SECONDS = 1.0
ACTIONS = {0: "off", 1: "on", 2: "cycle", 3: "reset", 5: "shutdown"}
"""What can be asked of the chassis; IPMI 2.0, table 28-4."""
OF_RUNNING = ("cycle", "reset", "shutdown")
NAME_BLOCK, NAME_BLOCKS = 16, 16
FAULT = 0x10
"""Power control fault; table 28-3."""

Tell = Callable[[Mapping[str, Any]], None]
"""Is told what happens, as an object of JSON. Called from several threads."""


class Outlet:
    """What sessions send by: a socket that never waits. What finds no room is lost, as on a net."""

    def __init__(self, own: socket.socket) -> None:
        """By the socket `own`."""
        self._own = own

    def setblocking(self, _: bool) -> None:
        """Nothing: pyghmi would let it wait."""

    def sendto(self, packet: bytes | bytearray, address: tuple[Any, ...]) -> None:
        """Send it, or not."""
        with contextlib.suppress(OSError):
            self._own.sendto(packet, address)


class Controller(Bmc):  # type: ignore[misc]  # pyghmi has no types
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
        # pyghmi's own initializer would let a thread of the whole process read the socket.
        self.name, self.machine = name, machine
        self.deviceid, self.revision = number, 0
        self.firmwaremajor, self.firmwareminor, self.ipmiversion = 1, 0, 2
        self.uuid = uuid.uuid5(uuid.NAMESPACE_OID, f"tailtap:{name}")
        # Channel 1; sessions of IPMI 2.0 only, of users with names and passwords.
        self.authcap = bytes([0, 1, 0b10000000, 0b00000100, 0b00000010, 0, 0, 0, 0])
        self._users = {user.encode(): password.encode() for user, password in users.items()}
        self._tell, self._attempts = tell, Attempts()
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
        self.serversocket = self.outlet = Outlet(self._socket)
        self.address = shown(self._socket.getsockname())
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._serve, name=f"bmc {name}")

    def start(self) -> None:
        """Begin to answer."""
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
        try:
            self._route(packet, address)
        except Exception:  # whatever pyghmi does with a damaged packet
            self.damaged += 1

    def _route(self, packet: bytes, address: tuple[Any, ...]) -> None:
        if len(packet) < 16 or packet[0] != RMCP[0] or packet[2:4] != RMCP[2:]:
            self.damaged += 1
            return
        if packet[4] == 0:  # of IPMI 1.5: a client asks whether we speak 2.0
            self.sessionless_data(packet, address)
            return
        kind, number = packet[5] & 0x3F, struct.unpack_from("<I", packet, 6)[0]
        if packet[4] != 6:
            self.damaged += 1
        elif kind == OPEN_REQUEST:
            self._open(packet[16:], address)
        elif kind == 0 and number == 0:
            self.sessionless_data(packet, address)
        else:
            if kind in (RAKP1, RAKP3):
                number = struct.unpack_from("<I", packet, 20)[0]
            found = self._sessions.get(number)
            if found is not None and found[0].sockaddr == address:
                found[0].receive(packet)

    def _open(self, request: bytes, address: tuple[Any, ...]) -> None:
        if len(request) < 32:
            self.damaged += 1
            return
        now, why = time.monotonic_ns(), None
        opening = [number for number, (one, _) in self._sessions.items() if not one.established]
        if not suite_of(request[8:32]):
            why = Refusal.NO_SUITE
        elif (
            self._attempts.refused(address[0], now)
            or len(self._sessions) - len(opening) >= MOST_SESSIONS
        ):
            why = Refusal.NO_ROOM
        if why is not None:
            # The same frame around the payload as pyghmi's.
            answer = refusal(request, why)
            head = RMCP + bytes([6, OPEN_RESPONSE]) + bytes(8) + struct.pack("<H", len(answer))
            self.outlet.sendto(head + answer, address)
            return
        if len(opening) >= MOST_OPENING:
            del self._sessions[opening[0]]
        number = 0
        while number == 0 or number in self._sessions:
            number = int.from_bytes(os.urandom(4), "little")
        self._sessions[number] = (Session(self, address, request, number), now)

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

    def password_of(self, name: bytes) -> bytes | None:
        """The password of the user `name`, None if there is none."""
        return self._users.get(name)

    def login_begun(self, session: Session) -> bool:
        """Whether the client's host may try; if so, it is counted as a failure until it succeeds.

        Many clients with a wrong password say no more: they see that our proof is not theirs.
        """
        host, now = session.sockaddr[0], time.monotonic_ns()
        if self._attempts.refused(host, now):  # it has opened many sessions before it failed
            return False
        self._attempts.failed(host, now)
        return True

    def login_failed(self, session: Session, why: str) -> None:
        """Tell it."""
        waits = self._attempts.refused(session.sockaddr[0], time.monotonic_ns())
        self._told({"event": "refused", **_whom(session), "why": why, "waits": waits})

    def login_succeeded(self, session: Session) -> None:
        """Forget the failures of the client's host."""
        self._attempts.succeeded(session.sockaddr[0])
        self._sessions[session.localsid] = (session, time.monotonic_ns())

    def close_session(self, session: Session) -> None:
        """It is over."""
        self._sessions.pop(session.localsid, None)

    # The commands, by the names that pyghmi calls them by.

    def handle_raw_request(self, request: Mapping[str, Any], session: Session) -> None:
        """Answer a request of an open session."""
        self._sessions[session.localsid] = (session, time.monotonic_ns())
        asked = (request["netfn"], request["command"])
        if asked in ((0, 2), (0, 8)) and session.clientpriv < OPERATOR:
            session.send_ipmi_response(code=Completion.PRIVILEGE)
        elif asked == (6, 0x54):
            data = request["data"]
            known = _suites(data[2]) if len(data) == 3 else b""
            code = 0 if len(data) == 3 else Completion.LENGTH
            session.send_ipmi_response(data=known, code=code)
        elif asked == (6, 0x59):
            self._get_system_info(request["data"], session)
        else:
            super().handle_raw_request(request, session)

    def send_device_id(self, session: Session) -> None:
        """Which controller this is: its number, and no manufacturer."""
        row = [self.deviceid, self.revision, self.firmwaremajor, self.firmwareminor]
        session.send_ipmi_response(data=[*row, self.ipmiversion, 0, 0, 0, 0, 0, 0])

    def get_system_guid(self) -> uuid.UUID:
        """It follows from the machine's name."""
        return self.uuid

    def get_chassis_status(self, session: Session) -> None:
        """Whether the machine runs, and whether it did what it was last told."""
        try:
            running = self.machine.status() == "on"
        except MachineError as error:
            self._failed("status", error)
            session.send_ipmi_response(code=Completion.FAILED)
            return
        session.send_ipmi_response(data=[running | (FAULT if self._fault else 0), 0, 0])

    def control_chassis(self, request: Mapping[str, Any], session: Session) -> None:
        """Let the machine do it; the answer does not wait for that."""
        data = request["data"]
        action = ACTIONS.get(data[0] & 0x0F) if len(data) == 1 else None
        if action is None:
            code = Completion.FIELD if len(data) == 1 else Completion.LENGTH
            session.send_ipmi_response(code=code)
        elif self._working is not None and self._working.is_alive():
            session.send_ipmi_response(code=Completion.BUSY)
        else:
            session.send_ipmi_response(code=self._begin(action, session))

    def get_system_boot_options(self, request: Mapping[str, Any], session: Session) -> None:
        """The boot flags; no other parameter is known."""
        data = request["data"]
        if len(data) != 3:
            session.send_ipmi_response(code=Completion.LENGTH)
        elif data[0] & 0x7F != 5:
            session.send_ipmi_response(code=0x80)  # unknown parameter; table 28-12
        else:
            try:
                device = DEVICES[self.machine.boot_device()]
            except MachineError as error:
                self._failed("boot device", error)
                session.send_ipmi_response(code=Completion.FAILED)
                return
            # Valid, and for all boots: it stays until another one is set.
            flags = 0b11000000 if device else 0
            session.send_ipmi_response(data=[1, 5, flags, device << 2, 0, 0, 0])

    def set_system_boot_options(self, request: Mapping[str, Any], session: Session) -> None:
        """Take the device of the boot flags; what goes before and after them is acknowledged."""
        data = request["data"]
        parameter = data[0] & 0x7F if data else None
        if parameter in (0, 3, 4):  # set in progress, which flags are cleared, acknowledgements
            session.send_ipmi_response()
        elif parameter != 5:
            session.send_ipmi_response(code=Completion.LENGTH if parameter is None else 0x80)
        elif len(data) != 6:
            session.send_ipmi_response(code=Completion.LENGTH)
        else:
            devices = {number: device for device, number in DEVICES.items()}
            device = devices.get((data[2] >> 2) & 0x0F)
            if device is None:
                session.send_ipmi_response(code=Completion.FIELD)
                return
            try:
                self.machine.set_boot_device(device)
            except MachineError as error:
                self._failed("boot device", error)
                session.send_ipmi_response(code=Completion.FAILED)
                return
            self._told({"event": "boot", "device": device, **_whom(session)})
            session.send_ipmi_response()

    def send_cipher_suites(
        self,
        myaddr: int,
        mylun: int,
        clientaddr: int,
        clientlun: int,
        clientseq: int,
        data: bytes,
        sockaddr: tuple[Any, ...],
    ) -> None:
        """Answer a client that has no session yet; pyghmi lists suite 3."""
        head = bytes([clientaddr, clientlun | 7 << 2])
        body = bytes([myaddr, mylun | clientseq << 2, 0x54, 0]) + _suites(data[22])
        message = head + bytes([_checksum(*head)]) + body + bytes([_checksum(*body)])
        frame = RMCP + bytes([6, 0]) + bytes(8) + struct.pack("<H", len(message))
        self.outlet.sendto(frame + message, sockaddr)

    def _get_system_info(self, data: bytes, session: Session) -> None:
        """The machine's name, in blocks of 16 bytes; IPMI 2.0, 22.14a."""
        if len(data) != 4:
            session.send_ipmi_response(code=Completion.LENGTH)
        elif data[1] != 2 or data[2] >= NAME_BLOCKS:
            session.send_ipmi_response(code=0x80)
        else:
            name = self.name.encode()[: NAME_BLOCK * NAME_BLOCKS - 2]
            # Before the name: UTF-8, and its length.
            whole = bytes([1, len(name)]) + name
            block = whole[data[2] * NAME_BLOCK :][:NAME_BLOCK].ljust(NAME_BLOCK, b"\0")
            session.send_ipmi_response(data=[0x11, data[2], *block])

    def _begin(self, action: str, session: Session) -> int:
        """Let the machine begin, in a thread of its own; the completion code."""
        try:
            if action in OF_RUNNING and self.machine.status() == "off":
                return Completion.STATE
        except MachineError as error:
            self._failed(action, error)
            return Completion.FAILED
        whom = _whom(session)
        self._working = threading.Thread(target=self._do, args=(action, whom), name=self.name)
        self._working.start()
        return 0

    def _do(self, action: str, whom: Mapping[str, Any]) -> None:
        try:
            getattr(self.machine, action)()
        except MachineError as error:
            self._fault = True
            self._failed(action, error)
        else:
            self._fault = False
            self._told({"event": "power", "action": action, **whom})

    def _failed(self, action: str, error: MachineError) -> None:
        self._told({"event": "failed", "action": action, "why": str(error)})

    def _told(self, row: Mapping[str, Any]) -> None:
        self._tell({**row, "machine": self.name})


def _suites(index: int) -> bytes:
    """Channel 1 and its cipher suites from 16 times `index` bytes on; IPMI 2.0, 22.15.1.

    Suite 17 is all: with RAKP-HMAC-SHA256, HMAC-SHA256-128 and AES-CBC-128, each with its tag.
    """
    suite = bytes([0xC0, SUITE, ALGORITHMS[0], 0x40 | ALGORITHMS[1], 0x80 | ALGORITHMS[2]])
    return b"\x01" + (suite if index & 0x3F == 0 else b"")


def _whom(session: Session) -> dict[str, Any]:
    return {"user": session.username.decode(errors="replace"), "from": session.sockaddr[0]}

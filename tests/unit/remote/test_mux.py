"""Frames: found in pieces of any size, and refused when they are none."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sleeping import until

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed, agent
from tailtap.remote.guest import GuestHost
from tailtap.remote.mux import (
    CLOSE,
    DATA,
    HEADER,
    HELLO,
    KINDS,
    LIMIT,
    OPEN,
    PIECE,
    PROTOCOL,
    WINDOW,
    WINDOW_BYTES,
    Channel,
    Decoder,
    Frame,
    Handler,
    Json,
    Mux,
    ProtocolError,
    as_bytes,
    encode,
)

NUMBERS = st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    Frame, st.sampled_from(sorted(KINDS)), st.integers(0, 255), NUMBERS, st.binary(max_size=300)
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(st.lists(FRAMES), st.lists(st.integers(0, 10_000)))
def test_frames_come_out_as_they_went_in_however_they_are_split(
    frames: list[Frame], cuts: list[int]
) -> None:
    decoder = Decoder()
    whole = b"".join(encode(*frame) for frame in frames)
    assert [found for piece in pieces(whole, cuts) for found in decoder.feed(piece)] == frames
    assert not decoder.within


@given(FRAMES, st.binary(min_size=1), st.lists(st.integers(0, 10_000)))
def test_what_is_no_frame_is_refused_after_what_came_before_it(
    frame: Frame, garbage: bytes, cuts: list[int]
) -> None:
    wrong = bytes([garbage[0] | 0x80]) + garbage[1:]  # no kind has its highest bit set
    decoder = Decoder()
    found: list[Frame] = []
    with pytest.raises(ProtocolError, match="says what makes no sense: ") as caught:
        for piece in pieces(encode(*frame) + wrong, cuts):
            found.extend(decoder.feed(piece))
    assert found == [frame] or not found  # at the latest with the piece that holds the garbage
    assert "\n" not in str(caught.value)


def test_no_frame_is_longer_than_the_limit() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        encode(ord("D"), 0, 1, bytes(LIMIT + 1))
    whole = encode(ord("D"), 0, 1, bytes(LIMIT))
    assert [len(frame.carried) for frame in Decoder().feed(whole)] == [LIMIT]
    with pytest.raises(ProtocolError, match="makes no sense"):
        list(Decoder().feed(HEADER.pack(ord("D"), 0, 1, LIMIT + 1)))


GREETING = encode(HELLO, 0, 0, as_bytes({"protocol": PROTOCOL}))


class Kept(Handler):
    def __init__(self, *, reads: bool = True) -> None:
        self.reads = reads
        self.streams: dict[int, bytes] = {}
        self.over: list[int] = []
        self.signals: list[int] = []
        self.results: list[Json] = []

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        self.streams[stream] = self.streams.get(stream, b"") + data
        if self.reads:
            channel.grant(len(data), stream)

    def ended(self, channel: Channel, stream: int) -> None:
        self.over.append(stream)

    def signalled(self, channel: Channel, number: int) -> None:
        self.signals.append(number)

    def closed(self, channel: Channel, result: Json) -> None:
        self.results.append(result)


class Pair:
    def __init__(self) -> None:
        self.served: list[tuple[Channel, Kept, Json]] = []
        self.near = Mux()
        self.far = Mux({"keep": self._serve})

    def _serve(self, channel: Channel, content: Json) -> Handler:
        kept = Kept(reads=content.get("reads", True))
        self.served.append((channel, kept, content))
        return kept

    def open(self, *, near: Kept | None = None, reads: bool = True) -> tuple[Channel, Kept]:
        kept = near or Kept()
        return self.near.open("keep", kept, reads=reads), kept

    def pass_on(self, sizes: Iterator[int] | None = None) -> None:
        """Until neither has anything to say; in pieces of these sizes."""
        sizes = sizes or iter(lambda: 1 << 30, None)
        going = True
        while going:
            going = False
            for one, other in ((self.near, self.far), (self.far, self.near)):
                said = one.take()
                going |= bool(said)
                while said:
                    size = next(sizes)
                    piece, said = said[:size], said[size:]
                    other.receive(piece)


SAID = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2), st.binary(max_size=40_000)),
    max_size=12,
)


@given(SAID, st.lists(st.integers(1, 50_000), min_size=1))
def test_interleaved_channels_keep_apart_and_in_order(
    said: list[tuple[int, bool, int, bytes]], sizes: list[int]
) -> None:
    pair = Pair()
    near = [pair.open() for _ in range(3)]
    wanted: dict[tuple[int, bool], dict[int, bytes]] = {}

    def all_sizes() -> Iterator[int]:
        while True:
            yield from sizes

    pair.pass_on(all_sizes())
    for place, from_near, stream, data in said:
        channel = near[place][0] if from_near else pair.served[place][0]
        channel.send(data, stream)
        if data:
            streams = wanted.setdefault((place, from_near), {})
            streams[stream] = streams.get(stream, b"") + data
    pair.pass_on(all_sizes())
    for place in range(3):
        pair.served[place][0].close(place=place)
    pair.pass_on(all_sizes())
    for place in range(3):
        assert pair.served[place][1].streams == wanted.get((place, True), {})
        assert near[place][1].streams == wanted.get((place, False), {})
        assert near[place][1].results == [{"place": place}]
    assert pair.near.take() == pair.far.take() == b""


@given(st.integers(0, 2_000))
def test_an_end_in_the_middle_ends_every_channel_once(kept_bytes: int) -> None:
    pair = Pair()
    channels = [pair.open() for _ in range(2)]
    for channel, _ in channels:
        channel.send(b"x" * 900)
    said = pair.near.take()
    pair.far.receive(said[:kept_bytes])
    pair.far.lose()
    pair.far.lose("twice")
    for _, kept, _ in pair.served:
        assert kept.results == [{"error": pair.far.over, "lost": True}]
    assert pair.far.over in ("", "ended within a message")
    if kept_bytes == 0 or kept_bytes >= len(said):
        assert pair.far.over == ""
    for channel, _, _ in pair.served:  # nobody is there to hear it, and nothing breaks
        channel.send(b"late")
        channel.close(exit=0)
        assert channel.room() == 0
    assert pair.far.take() == b""
    pair.near.lose()
    later = Kept()
    pair.near.open("keep", later)
    assert later.results == [{"error": "", "lost": True}]


def test_what_nobody_reads_stops_its_sender_and_nobody_else() -> None:
    pair = Pair()
    slow, _ = pair.open(reads=False)
    fast, _ = pair.open()
    pair.pass_on()
    slow.send(bytes(2 * WINDOW_BYTES), 0)
    slow.send(b"another stream", 1)
    fast.send(bytes(3 * WINDOW_BYTES))
    pair.pass_on()
    (far_slow, kept_slow, _), (_, kept_fast, _) = pair.served
    assert {key: len(value) for key, value in kept_slow.streams.items()} == {0: WINDOW_BYTES, 1: 14}
    assert len(kept_fast.streams[0]) == 3 * WINDOW_BYTES
    assert (slow.room(), slow.room(1), fast.room()) == (0, WINDOW_BYTES - 14, WINDOW_BYTES)
    slow.signal(15)  # goes ahead of what waits
    pair.pass_on()
    assert kept_slow.signals == [15]
    far_slow.grant(WINDOW_BYTES)
    pair.pass_on()
    assert len(kept_slow.streams[0]) == 2 * WINDOW_BYTES


def test_each_channel_gets_its_turn() -> None:
    pair = Pair()
    channels = [pair.open()[0] for _ in range(2)]
    pair.pass_on()
    for channel in channels:
        channel.send(bytes(4 * PIECE))
    pair.far.receive(pair.near.take())
    assert [len(kept.streams[0]) for _, kept, _ in pair.served] == [PIECE, PIECE]


def test_a_stream_ends_and_a_channel_closes_after_what_was_sent() -> None:
    pair = Pair()
    channel, kept = pair.open(near=Kept(reads=False))
    channel.end()
    pair.pass_on()
    far, far_kept, _ = pair.served[0]
    assert far_kept.over == [0]
    far.send(bytes(WINDOW_BYTES + 1), 1)
    far.end(1)
    far.close(exit=3)
    assert far.result == {"exit": 3}
    far.send(b"after the end", 1)
    pair.pass_on()
    assert (kept.over, kept.results) == ([], [])
    channel.grant(WINDOW_BYTES, 1)
    pair.pass_on()
    assert (len(kept.streams[1]), kept.over, kept.results) == (WINDOW_BYTES + 1, [1], [{"exit": 3}])


def test_an_abandoned_channel_is_over_at_both_ends_and_heard_of_no_more() -> None:
    pair = Pair()
    channel, kept = pair.open(near=Kept(reads=False))
    pair.pass_on()
    far, far_kept, _ = pair.served[0]
    far.send(bytes(2 * WINDOW_BYTES))
    channel.send(bytes(2 * WINDOW_BYTES))
    said = pair.far.take()
    channel.abandon()
    pair.near.receive(said)
    pair.pass_on()
    assert (kept.streams, kept.results) == ({}, [])
    assert far_kept.results == [{}]
    assert not pair.near.has(channel) and not pair.far.has(far)


def test_what_is_not_served_is_refused() -> None:
    pair = Pair()
    kept = Kept()
    pair.near.open("brew", kept)
    pair.pass_on()
    assert kept.results == [{"error": "cannot be asked for 'brew'", "status": 3}]


def test_only_what_fits_into_a_frame_can_be_asked_for() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        Mux().open("keep", Handler(), words="x" * (1 << 20))


OPENED = GREETING + encode(OPEN, 0, 1, b'{"kind":"keep"}')


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(HELLO, 0, 0, b'{"protocol":2}'), "speaks version 2 of the protocol, this program"),
        (encode(HELLO, 0, 0, b"[]"), "says what is no JSON object"),
        (encode(HELLO, 0, 0, b"hello"), "says what is no JSON: b'hello'"),
        (encode(DATA, 0, 1, b"x"), "does not say hello first"),
        (GREETING + GREETING, "says hello twice"),
        (GREETING + encode(DATA, 0, 1, b"x"), "speaks of channel 1, which was never opened"),
        (OPENED + encode(OPEN, 0, 1, b"{}"), "opens channel 1, which it cannot"),
        (OPENED + encode(WINDOW, 0, 1, b"x"), "says a number in 1 bytes"),
        (OPENED + encode(CLOSE, 0, 1, b"x"), "says what is no JSON: b'x'"),
        (OPENED + b"raving\n", "says what makes no sense: 'raving'"),
    ],
)
def test_what_breaks_the_protocol_is_one_error_and_the_end(said: bytes, why: str) -> None:
    pair = Pair()
    with pytest.raises(ProtocolError) as caught:
        pair.far.receive(said)
    assert str(caught.value).startswith(why)
    assert pair.far.over == str(caught.value)
    assert "\n" not in str(caught.value)
    assert [kept.results for _, kept, _ in pair.served] in (
        [],
        [[{"error": str(caught.value), "lost": True}]],
    )


ANY_FRAME = st.tuples(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([b"", b"{}", b"[[", b"[" * 100_000, b'{"kind":"keep"}', bytes(4), b"\xff"])
    | st.binary(max_size=8),
)


@given(st.lists(ANY_FRAME, max_size=20), st.binary(max_size=20))
def test_whatever_is_said_is_an_answer_or_one_error(
    frames: list[tuple[int, int, int, bytes]], garbage: bytes
) -> None:
    for mux in (Pair().far, Pair().near):
        with contextlib.suppress(ProtocolError):
            mux.receive(GREETING + b"".join(encode(*frame) for frame in frames) + garbage)
        while mux.take():
            pass


def test_nobody_sends_more_than_the_window() -> None:
    pair = Pair()
    pair.far.receive(GREETING + encode(OPEN, 0, 1, b'{"kind":"keep","reads":false}'))
    for _ in range(WINDOW_BYTES // PIECE):
        pair.far.receive(encode(DATA, 0, 1, bytes(PIECE)))
    with pytest.raises(ProtocolError, match="sends more than it may"):
        pair.far.receive(encode(DATA, 0, 1, b"x"))


PATIENCE_SECONDS = 200.0
AGENT = agent.program().replace(
    "import main; main()", "import serve; serve(*[int(sys.argv[1])] * 2)"
)


@dataclass
class Machine:
    """A host, and the process that stands for the guest."""

    host: GuestHost
    agent: subprocess.Popen[bytes]
    port: Path


@contextlib.contextmanager
def port(folder: Path) -> Iterator[tuple[Path, socket.socket]]:
    """What QEMU makes of a guest's port: a socket that one process can connect to."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "port"))
        listening.listen()
        yield folder / "port", listening


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with port(tmp_path) as (path, listening):
        host = GuestHost("paper", path, 1.0)
        connected, _ = listening.accept()
        number = connected.fileno()
        command = [sys.executable, "-I", "-S", "-c", AGENT, str(number)]
        with subprocess.Popen(command, pass_fds=[number]) as process:
            connected.close()
            try:
                host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
                yield Machine(host, process, path)
            finally:
                host.close()
                assert process.wait(PATIENCE_SECONDS) in (0, -signal.SIGKILL)


def runs(words: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().rstrip(b"\0").split(b"\0") == words.encode().split():
                return True
    return False


def test_commands_run_as_on_any_host(machine: Machine, tmp_path: Path) -> None:
    host = machine.host
    done = host.run(["sh", "-c", "cat; echo no >&2; exit 7"], stdin="in", check=False)
    assert (done.stdout, done.stderr, done.status) == ("in", "no\n", 7)
    with pytest.raises(CommandFailed, match="`false` failed: status 1"):
        host.run(["false"])
    with pytest.raises(MachineError, match="the program tt-none is missing"):
        host.run(["tt-none"])
    words = f"sleep 4714{os.getpid()}"
    with pytest.raises(CommandFailed, match=rf"`{words}` failed: no answer within 0.1 s"):
        host.run(words.split(), seconds=0.1)
    assert until(lambda: not runs(words))
    (tmp_path / "a").write_bytes(b"content")
    host.put(tmp_path / "a", tmp_path / "b")
    host.get(tmp_path / "b", tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == b"content"
    with pytest.raises(CommandFailed, match="No such file"):
        host.get(tmp_path / "none", tmp_path / "d")


def test_many_commands_at_a_time_are_children_that_say_what_they_say(machine: Machine) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    processes = [machine.host.start(["sh", "-c", script]) for _ in range(20)]
    for process in processes:
        assert process.read_line(PATIENCE_SECONDS) == "ready"
    first, second, *others = processes
    first.interrupt()
    assert first.read_line(PATIENCE_SECONDS) == "caught"
    first.wait(PATIENCE_SECONDS)
    assert first.status == 5
    second.close()
    assert second.status == -signal.SIGTERM
    assert not any(process.ended for process in others)
    failing = machine.host.start(["sh", "-c", "echo why >&2; exit 3"])
    with pytest.raises(MachineError, match="sh ended with status 3: why"):
        failing.expect("ready", PATIENCE_SECONDS)
    for process in (*processes, failing):
        process.close()


def test_a_relay_that_is_killed_takes_its_command_along(machine: Machine) -> None:
    words = f"sleep 4713{os.getpid()}"
    lost = machine.host.start(["sh", "-c", f"echo ready; exec {words}"])
    assert lost.read_line(PATIENCE_SECONDS) == "ready"
    assert until(lambda: runs(words))
    os.kill(lost.pid, signal.SIGKILL)
    assert until(lambda: not runs(words))
    assert machine.host.run(["echo", "on"]).stdout == "on\n"
    lost.close()


def test_a_guest_that_ends_takes_its_commands_along(machine: Machine) -> None:
    running = machine.host.start(["sh", "-c", "echo ready; exec sleep 60"])
    assert running.read_line(PATIENCE_SECONDS) == "ready"
    machine.agent.kill()
    running.wait(PATIENCE_SECONDS)
    assert running.failure() == "sh ended with status 125: the virtual machine has ended"
    with pytest.raises(MachineError, match="the virtual machine paper has ended"):
        machine.host.run(["true"])
    late = machine.host.start(["true"])
    late.wait(PATIENCE_SECONDS)
    assert late.status == 125
    running.close()
    late.close()


def test_a_guest_whose_port_is_let_go_of_ends(machine: Machine) -> None:
    """The process that holds it was killed: nobody can ask for anything any more."""
    words = f"sleep 4715{os.getpid()}"
    running = machine.host.start(["sh", "-c", f"echo ready; exec {words}"])
    assert running.read_line(PATIENCE_SECONDS) == "ready"
    assert until(lambda: runs(words))
    os.kill(machine.host._switch.pid, signal.SIGKILL)
    assert machine.agent.wait(PATIENCE_SECONDS) == 0
    assert until(lambda: not runs(words))
    running.wait(PATIENCE_SECONDS)
    assert running.status == 125
    with pytest.raises(MachineError, match="port of virtual machine paper was ended by SIGKILL"):
        machine.host.run(["true"])
    running.close()


def test_a_guest_that_does_not_boot_is_waited_for_only_so_long(tmp_path: Path) -> None:
    with port(tmp_path) as (path, listening):
        host = GuestHost("paper", path, 1.0)
        connected, _ = listening.accept()
        try:
            with pytest.raises(TimeoutError):
                host.wait_until_up(time.monotonic() + 0.2)
            connected.close()
            with pytest.raises(MachineError, match="the virtual machine paper has ended"):
                host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
        finally:
            host.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(HELLO, 0, 0, b'{"protocol":2}'), "speaks version 2 of the protocol"),
        (b"login: ", "has ended"),
    ],
)
def test_what_is_no_agent_is_said_to_be_none(tmp_path: Path, said: bytes, why: str) -> None:
    with port(tmp_path) as (path, listening):
        host = GuestHost("paper", path, 1.0)
        connected, _ = listening.accept()
        try:
            connected.sendall(said)
            with pytest.raises(MachineError, match=f"the virtual machine paper {why}"):
                host.wait_until_up(time.monotonic() + PATIENCE_SECONDS)
        finally:
            connected.close()
            host.close()


def test_a_port_without_a_machine_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        GuestHost("paper", tmp_path / "none", 1.0)
    assert str(caught.value) == (
        "the port of virtual machine paper ended with status 1: "
        f"nobody is at {tmp_path}/none: No such file or directory"
    )

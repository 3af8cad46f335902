"""By what packets are served: written, read back, and found out of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailtap.base.errors import InputError
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.forwarders.commands import PROGRAMS, ServerOptions, is_listening
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.own import Forwarding
from tailtap.lab.served import (
    SOFTIRQ,
    Served,
    Server,
    backlog_threads,
    by_kernel,
    is_running,
    server_records,
    steered_threads,
    threads_of,
)
from tailtap.lab.topology.placement import Placed
from tailtap.records import trace
from tailtap.remote import Completed
from tailtap.remote.local import LocalHost, Process


@pytest.mark.parametrize(
    "served", [SOFTIRQ, Served("task", (12, 13)), Served("poll", (7,)), Served("vcpu", (8, 9))]
)
def test_what_is_written_is_read_back(served: Served) -> None:
    """The option of `tailtap trace` holds all of it."""
    assert Served.parse(str(served)) == served


@pytest.mark.parametrize(
    "text", ["", "task", "task:", "softirq:12", "poll:a", "task:1,,2", "nobody:3", "task:-1"]
)
def test_anything_else_is_refused(text: str) -> None:
    """A thread without a number, and numbers without threads, say nothing."""
    with pytest.raises(InputError, match="does not say by what packets are served"):
        Served.parse(text)


def test_a_trace_has_it_with_the_cpus() -> None:
    """The softirq's number is that of NET_RX; threads have none."""
    assert server_records([Server(SOFTIRQ)], [1, 2]) == trace.Server(
        by="softirq", vector=3, cpus=[1, 2]
    )
    assert server_records([Server(Served("task", (5,)))], [1]) == trace.Server(
        by="task", pids=[5], cpus=[1]
    )


def test_threads_are_those_of_children_too() -> None:
    """A shell that waits for a program is not what serves, but the program below it is found."""
    with subprocess.Popen(["sh", "-c", "sleep 60; true"]) as shell:
        found: tuple[int, ...] = ()
        while len(found) < 2:
            found = threads_of(shell.pid)
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in found]
        assert names[0] == "sh"
        assert found[0] == shell.pid
        os.kill(found[1], 15)
        shell.wait()
    assert threads_of(shell.pid) == ()


def test_a_thread_that_never_sleeps_runs() -> None:
    """One that works is running, one that waits is not, and one that is gone is not either."""
    over = threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            while not is_running(busy.pid):
                pass
            assert waiting.native_id is not None
            while is_running(waiting.native_id):  # it has begun, and waits soon
                pass
        finally:
            over.set()
            busy.kill()
    waiting.join()
    assert not is_running(busy.pid)


def test_the_kernel_serves_by_its_softirq() -> None:
    """Where rules forward, and where a program only installed what does."""
    assert InKernel("tc-mirred").served() == SOFTIRQ
    process = Process(["sleep", "60"], "sleep")
    try:
        assert Forwarding("xdp", process, kernel=SOFTIRQ).served() == SOFTIRQ
        task = Forwarding("fault", process).served()
        assert task.by == "task"
        assert process.pid in task.pids
    finally:
        process.close()


REALTIME = """\
2 (kthreadd) S 0 0 0 0 -1 2129984 0 0
16 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0
17 (ktimers/0) S 2 0 0 0 -1 69238848 0 0
71 (backlog_napi/0) S 2 0 0 0 -1 69238848 0 0
72 (backlog_napi/1) S 2 0 0 0 -1 69238848 0 0
73 (backlog_napi/2) S 2 0 0 0 -1 69238848 0 0
181 (irq/33-virtio0-) S 2 0 0 0 -1 2129984 0 0
240 (napi/tt-in-8193) S 2 0 0 0 -1 2129984 0 0
300 (backlog_napi/1) S 240 300 300 0 -1 4194304 0 0
301 (a) b (backlog) R 240 300 300 0 -1 4194304 0 0
"""
"""What a guest with Linux 6.12 and PREEMPT_RT says of its threads, and two programs that lie."""


def listed(folder: Path, text: str) -> Path:
    """A /proc with these processes."""
    for line in text.splitlines():
        process = folder / line.split()[0]
        process.mkdir()
        (process / "stat").write_text(f"{line}\n")
    (folder / "999").mkdir()  # one that ended meanwhile
    return folder


def test_a_real_time_kernel_has_a_thread_for_each_backlog(tmp_path: Path) -> None:
    assert backlog_threads(listed(tmp_path, REALTIME)) == {0: 71, 1: 72, 2: 73}


def test_other_kernels_have_none(tmp_path: Path) -> None:
    others = [line for line in REALTIME.splitlines() if "backlog" not in line]
    assert backlog_threads(listed(tmp_path, "\n".join(others))) == {}


@pytest.mark.parametrize(
    ("receiving", "cards", "expected"),
    [
        ({"in": (1,)}, {}, [72]),
        ({"in": (1, 2), "back": (1,)}, {}, [72, 73]),
        # Steered nowhere: the thread of whatever CPU sends.
        ({"in": ()}, {}, [71, 72, 73]),
        # Cards interrupt, and their softirqs receive.
        ({"in": (1,)}, {"in": "eth0"}, []),
        ({"in": (1,), "back": (2,)}, {"in": "eth0"}, [73]),
        ({"in": (9,)}, {}, []),
        ({}, {}, []),
    ],
)
def test_threads_of_the_backlogs_serve_what_is_steered_to_them(
    receiving: dict[str, tuple[int, ...]], cards: dict[str, str], expected: list[int]
) -> None:
    placed = Placed((1,), cards, receiving)
    assert steered_threads(placed, {0: 71, 1: 72, 2: 73}) == expected
    assert steered_threads(placed, {}) == []


class _Node:
    """A node of a lab: what `by_kernel` asks of both."""

    node = "dut"

    def __init__(self, *, guest: bool = False, polled: tuple[int, ...] = ()) -> None:
        self.own_kernel, self.polled, self.host = guest, polled, self

    def port_threads(self, node: str) -> tuple[int, ...]:
        return self.polled

    def placed(self, node: str) -> Placed:
        return Placed((1,), {}, {"in": (1,)})


@pytest.mark.parametrize(
    ("node", "threads", "expected"),
    [
        (_Node(), {}, SOFTIRQ),
        (_Node(), {1: 72}, Served("task", [72])),
        (_Node(polled=(240,)), {1: 72}, Served("task", (240,))),
        (_Node(guest=True), {1: 72}, SOFTIRQ),
    ],
)
def test_the_kernel_serves_by_its_threads_where_it_has_them(
    node: _Node, threads: dict[int, int], expected: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailtap.lab.served.backlog_threads", lambda: threads)
    lab: Any = node
    assert by_kernel(lab, lab) == expected


@pytest.mark.parametrize(
    ("listens", "command", "said"),
    [
        ("53", "dnsmasq", "is no port"),
        ("udp:0", "dnsmasq", "is no port"),
        ("udp:65536", "dnsmasq", "is no port"),
        ("udp:53", "dnsmasq {port}", "{port} stands for nothing"),
        ("udp:53", "", "an empty command does nothing"),
    ],
)
def test_options_that_say_nothing_are_refused(listens: str, command: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ServerOptions(listens=listens, command=command)


class Files(LocalHost):
    """A host whose `/proc/net` is known."""

    rows = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0202C612:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2
   1: 0202C612:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 2
   2: 0202C612:1F90 0102C612:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 2
"""

    def run(self, command: Sequence[str], **options: Any) -> Completed:
        """Every file has these rows."""
        return Completed(stdout=self.rows, stderr="", status=0)


@pytest.mark.parametrize(
    ("port", "listening"),
    [
        ("udp:53", True),
        ("tcp:80", True),
        ("tcp:53", False),
        ("tcp:8080", False),
        ("udp:5", False),
    ],
)
def test_a_port_is_listened_at(port: str, listening: bool) -> None:
    assert is_listening(Files(), port) == listening


def test_doctor_names_all_missing_programs_in_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tailtap.lab.forwarders.setting.SYSTEM_PATH", str(tmp_path))
    (tmp_path / "dnsmasq").write_text("#!/bin/sh\n")
    (tmp_path / "dnsmasq").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sh").symlink_to("/bin/sh")
    [check] = FORWARDERS["server"].diagnose()
    assert (check.state, check.remedy) == ("missing", "apt-get install dnsperf nginx-light wrk")
    for program in PROGRAMS:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    [check] = FORWARDERS["server"].diagnose()
    assert check.state == "ok"

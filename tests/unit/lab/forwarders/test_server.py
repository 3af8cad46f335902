"""`server`: what its options may be, when it listens, what doctor says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.forwarders.commands import PROGRAMS, ServerOptions, is_listening
from tailtap.lab.forwarders.program import parse_cpu_time
from tailtap.remote import Completed
from tailtap.remote.local import LocalHost


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


def test_the_cpu_time_of_a_process_is_that_of_its_line() -> None:
    line = "12 (a) b) S 1 12 12 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 1 0 100 1 1"
    assert parse_cpu_time(line) == {"user": 70_000_000, "system": 50_000_000}

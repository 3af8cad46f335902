"""What tasks and late packets are called."""

from __future__ import annotations

from typing import Any

import pytest

from tailtap.analysis.causes.taxonomy import Names
from tailtap.records.evaluation import packet_name
from tailtap.records.record import parsed
from tailtap.records.trace import Task

CONTAINER, POD = "a" * 64, "pod12345678_1234_1234_1234_123456789012"
CALLED: dict[str, dict[str, Any]] = {
    "py": {"cgroup": "/"},
    "py, nice 5, cron.service": {"cgroup": "/system.slice/cron.service", "priority": 5},
    "py, BATCH, /a/x": {"cgroup": "/a/x", "policy": "BATCH"},
    "py, RR 9, /b/x": {"cgroup": "/b/x", "policy": "RR", "priority": 9},
    "py, FIFO 50": {"policy": "FIFO", "priority": 50, "cgroup": None},
    "py, BATCH, nice -3, 0e931f5a7630": {
        "cgroup": "/x/0e931f5a7630a3d52f6687fe2ea70775",
        "policy": "BATCH",
        "priority": -3,
    },
    "py, container aaaaaaaaaaaa": {"cgroup": f"/docker-{CONTAINER}.scope"},
    "py, pod 12345678, container aaaaaaaaaaaa": {
        "cgroup": f"/kubepods.slice/kubepods-{POD}.slice/cri-containerd-{CONTAINER}.scope"
    },
    "py, tailtap's generator": {"command": "python3 -P -m tailtap generate eth0", "own": True},
    "py, tailtap's run": {"command": "/bin/tailtap run x", "own": True, "cgroup": "/x"},
    "py, started by tailtap": {"command": "trafgen", "own": True, "policy": "FIFO"},
}


def test_tasks_are_called_by_what_tells_them_from_others() -> None:
    """Those that ended before anybody looked are one with others of their name and policy."""
    facts = {"policy": "OTHER", "priority": 0, "cgroup": "/"}
    tasks = {pid: parsed("", facts | {"pid": pid} | told, Task)
             for pid, told in enumerate(CALLED.values())}  # fmt: skip
    ended = parsed("", facts | {"pid": 78, "own": True}, Task)
    assert ended.words("tt-generate", "") == "tt-generate, tailtap's generator"
    tasks[77] = parsed("", facts | {"pid": 77, **CALLED["py, RR 9, /b/x"], "cgroup": None}, Task)
    names = Names(dict.fromkeys(tasks, "py"), tasks=tasks)
    assert list(map(names.thread, tasks)) == [*CALLED, "py, RR 9, /b/x"]
    assert names.thread(99) == "pid 99"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("4711", "packet 4711"),
        ("292b0782a4c6b408", "packet"),
        ("", "packet"),
        ("udp 10.0.0.1:5 > 10.0.0.2:9 id 12345678", "udp 10.0.0.1:5 > 10.0.0.2:9 id 12345678"),
        ("tcp [fd00::1]:5 > [fd00::2]:9 deadbeef", "tcp [fd00::1]:5 > [fd00::2]:9"),
        ("0x88cc 0123456789abcdef", "0x88cc"),
    ],
)
def test_a_packet_is_called_by_flow_id_and_time(key: str, name: str) -> None:
    assert packet_name(key, 3_214_567_890) == f"{name} at 3.214568 s"

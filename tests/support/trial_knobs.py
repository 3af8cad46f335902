"""A package of somebody else with knobs: three that end a disturbance of ours, two that do nothing.

Each knob is a file that says ``runs`` or ``stopped``; `Disturbances` does as the first three say.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.host.knobs.knob import Files, Knob, fixed

if TYPE_CHECKING:
    from injectors import Injector

FOLDER = os.environ.get("TAILTAP_TEST_KNOBS", "/nowhere")
LOOK_SECONDS = 0.01
RUNS, STOPPED = "runs", "stopped"


def _knob(name: str, cause: str, details: str) -> Knob:
    return Knob(
        name,
        Files(f"{FOLDER}/{name}"),
        fixed(STOPPED),
        "A test disturbs the device.",
        "tests/support/injectors.py",
        group="services",
        removes=(cause,),
        risk=0,
        details=details,
    )


HOG = _knob("test-ends-hog", "task", "injector")
TIMERS = _knob("test-ends-timers", "timer", "")
FLOW = _knob("test-ends-flow", "foreign-net-rx", "")
DECOY_OF_TASKS = _knob("test-nothing-for-tasks", "task", "")
DECOY_OF_TIMERS = _knob("test-nothing-for-timers", "timer", "")
RIGHT = ("test-ends-hog", "test-ends-timers", "test-ends-flow")
DECOYS = ("test-nothing-for-tasks", "test-nothing-for-timers")
ENTRY_POINTS = {
    "tailtap.knobs": "\n".join(
        f"{row.name} = trial_knobs:{name}"
        for name, row in (
            ("HOG", HOG),
            ("TIMERS", TIMERS),
            ("FLOW", FLOW),
            ("DECOY_OF_TASKS", DECOY_OF_TASKS),
            ("DECOY_OF_TIMERS", DECOY_OF_TIMERS),
        )
    )
}


@contextlib.contextmanager
def disturbances(
    folder: Path, kinds: Mapping[str, Callable[[], AbstractContextManager[Injector]]]
) -> Iterator[None]:
    """Make the files of all knobs in `folder`, and disturb as those of `kinds` say.

    An injector whose own time is over begins again.
    """
    for name in (*RIGHT, *DECOYS):
        (folder / name).write_text(RUNS)
    ended = threading.Event()
    failed: list[BaseException] = []

    def follow(name: str, begin: Callable[[], AbstractContextManager[Injector]]) -> None:
        try:
            while not ended.is_set():
                with ExitStack() as stack:
                    injector = None
                    if asked(folder / name) == RUNS:
                        injector = stack.enter_context(begin())
                    now = asked(folder / name)
                    while asked(folder / name) == now and not ended.wait(LOOK_SECONDS):
                        if injector is not None and injector.process.poll() is not None:
                            break
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=follow, args=kind) for kind in kinds.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def asked(file: Path) -> str:
    """What a knob says."""
    return file.read_text().strip()

"""How this machine's clock is kept: adjtimex(2), the programs that discipline it, and PTP clocks.

CLOCK_MONOTONIC never steps, but it runs as fast as whoever disciplines the system's clock says.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text
from tailtap.base.proc import names
from tailtap.records.machine import ClockErrors, Timekeeping

PROGRAMS = ("chronyd", "ntpd", "openntpd", "systemd-timesyn", "ptp4l", "phc2sys", "ts2phc")
"""What disciplines clocks, as /proc/PID/comm has it, which ends after 15 characters."""
UNSYNCHRONISED, NANOSECONDS = 0x0040, 0x2000
"""STA_UNSYNC and STA_NANO of linux/timex.h."""
USUAL_TICK_US = 10_000
"""What a hundredth of a second adds to the clock, unless somebody changed it."""


class _Timex(ctypes.Structure):
    """`struct timex` of linux/timex.h where a long has 64 bits."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in (
            "constant", "precision", "tolerance", "seconds", "microseconds", "tick", "ppsfreq",
            "jitter",
        )),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("more", ctypes.c_int * 11),
    )  # fmt: skip


def require_kernel_clock(root: Path = Path("/")) -> None:
    """Raises `MachineError` where processes see another monotonic clock than the kernel stamps by.

    time_namespaces(7): what programs of the kernel read is not shifted.
    """
    for line in (read_text(root / "proc/self/timens_offsets") or "").splitlines():
        clock, *offset = line.split()
        if clock == "monotonic" and any(map(int, offset)):
            seconds, nanoseconds = map(int, offset)
            raise MachineError(
                "this process is in a time namespace, whose monotonic clock is ahead of the "
                f"kernel's by {seconds + nanoseconds / 1e9:g} s, and packets are stamped by that: "
                "leave it (nsenter --target 1 --time), or start the container without one"
            )


def describe(root: Path = Path("/")) -> Timekeeping:
    """For ``run.json``: how the kernel corrects its clock, and who tells it to.

    `rate_ppb` is what the clock is made to run faster, `slewing_ns` what is left of an offset that
    is being removed, and the errors are what the disciplining program claims. Raises `MachineError`
    when the kernel does not tell.
    """
    state = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
        raise MachineError("the kernel does not tell how it corrects its clock (adjtimex)")
    running = names(root / "proc").values()
    clocks = sorted((root / "sys/class/ptp").glob("ptp*"))
    return Timekeeping(
        synchronised=not state.status & UNSYNCHRONISED,
        # freq is in millionths, with 16 bits behind the point; a us per tick are 100 millionths.
        rate_ppb=round(state.freq * 1000 / (1 << 16)) + (state.tick - USUAL_TICK_US) * 100_000,
        slewing_ns=state.offset * (1 if state.status & NANOSECONDS else 1000),
        error_ns=ClockErrors(estimated=state.esterror * 1000, most=state.maxerror * 1000),
        programs=[name for name in PROGRAMS if name in running],
        ptp={path.name: read_text(path / "clock_name") for path in clocks},
    )

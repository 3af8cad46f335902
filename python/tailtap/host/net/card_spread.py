"""Over which receive queues a card spreads packets: the indirection table of its hash (RSS).

`ethtool -X` makes tables in two forms, and drivers begin with others. So a table is put back entry
by entry, by the call that `ethtool` makes: ETHTOOL_SRXFHINDIR of include/uapi/linux/ethtool.h.
"""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Sequence
from functools import partial

from tailtap.base.errors import MachineError
from tailtap.host.net.inside import inside

_SIOCETHTOOL = 0x8946
_SET_TABLE = 0x39


def parse_table(text: str) -> dict[str, str]:
    """What `ethtool -x` shows: the ``table``, over how many queues it spreads (``equal``), and how
    many there are (``max equal``).

    ``equal`` is only there if packets go to the first so many queues, and to each as often as to
    the others: one entry more or less is what division leaves over.
    """
    rows = re.findall(r"^\s*\d+:((?:\s+\d+)+)\s*$", text, re.MULTILINE)
    table = [int(queue) for row in rows for queue in row.split()]
    rings = re.search(r"with (\d+) RX ring", text)
    if rings is None or not table:
        return {}
    often = [table.count(queue) for queue in range(max(table) + 1)]
    equal = {"equal": str(len(often))} if max(often) - min(often) <= 1 else {}
    return {**equal, "max equal": rings[1], "table": " ".join(map(str, table))}


def set_table(interface: str, table: str, queues: int, namespace: str | None = None) -> None:
    """Have a card that has so many queues spread packets so: the queue of each entry.

    Raises `MachineError`.
    """
    entries = list(map(int, table.split()))
    if entries == [place % queues for place in range(len(entries))]:
        # The kernel's own table: whoever asks for no entries gets it, and it does not stand against
        # fewer queues, as a table of somebody does.
        entries = []
    work = partial(_set_table, interface, entries)
    if namespace is None:
        work()
    else:
        inside([(namespace, work)])


def _set_table(interface: str, entries: Sequence[int]) -> None:
    content = array.array("I", [_SET_TABLE, len(entries), *entries])
    place, _ = content.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), place))
    except OSError as error:
        raise MachineError(
            f"{interface} cannot spread packets over its queues as before: {error.strerror}"
        ) from error

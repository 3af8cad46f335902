"""A device without Ethernet: it passes packets on from one tun device to another.

`tun_device.py COMES LEAVES`: both are made here, and go with it. It says "ready" once they are.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys

SET = 0x400454CA
"""TUNSETIFF of linux/if_tun.h."""
TUN, NO_HEADER = 0x0001, 0x1000


def opened(name: str) -> int:
    """The other end of a tun device, which is up."""
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, SET, struct.pack("16sH22x", name.encode(), TUN | NO_HEADER))
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return end


if __name__ == "__main__":
    comes, leaves = map(opened, sys.argv[1:])
    print("ready", flush=True)
    while True:
        os.write(leaves, os.read(comes, 2048))

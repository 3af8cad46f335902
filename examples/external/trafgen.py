"""Writes a configuration of trafgen: N packets in MoonSniff's layout, each with its own id.

Usage: python3 trafgen.py N [SIZE] | trafgen --in - …
"""

import sys

HEADERS = 14 + 20 + 8
ID_AND_TYPE = 5
FCS = 4

count = int(sys.argv[1])
size = int(sys.argv[2]) if len(sys.argv) > 2 else 64
for number in range(count):
    swapped = int.from_bytes(number.to_bytes(4, "little"), "big")  # the id is little-endian
    rest = size - FCS - HEADERS - ID_AND_TYPE
    print(
        "{ eth(da=02:74:74:00:00:02, sa=02:74:74:00:00:01), ipv4(saddr=10.0.0.1, daddr=10.1.0.1),"
        f" udp(sport=1024, dport=53), c32({swapped}), 0x55, fill(0, {rest}) }}"
    )

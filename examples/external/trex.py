"""Lets a TRex server send packets with MoonSniff's ids at a constant rate, and waits for its end.

Usage: python3 trex.py RATE PACKETS SIZE, with TRex's trex_control_plane/interactive in PYTHONPATH
and `t-rex-64 -i` running.
"""

import sys

from trex.stl.api import (  # type: ignore[import-not-found]
    IP,
    UDP,
    Ether,
    STLClient,
    STLPktBuilder,
    STLScVmRaw,
    STLStream,
    STLTXSingleBurst,
    STLVmFlowVar,
    STLVmWrFlowVar,
)

HEADERS = 14 + 20 + 8
FCS = 4
PORT = 0

rate, packets, size = map(int, sys.argv[1:4])
headers = Ether(src="02:74:74:00:00:01", dst="02:74:74:00:00:02")
headers = headers / IP(src="10.0.0.1", dst="10.1.0.1") / UDP(sport=1024, dport=53, chksum=0)
payload = (bytes(4) + b"\x55").ljust(size - FCS - HEADERS, b"\0")
counter = STLScVmRaw(
    [
        STLVmFlowVar(name="id", min_value=0, max_value=2**32 - 1, size=4, op="inc"),
        STLVmWrFlowVar(fv_name="id", pkt_offset=HEADERS, is_big=False),
    ]
)
stream = STLStream(
    packet=STLPktBuilder(pkt=headers / payload, vm=counter),
    mode=STLTXSingleBurst(pps=rate, total_pkts=packets),
)
client = STLClient()
client.connect()
try:
    client.reset(ports=[PORT])
    client.add_streams(stream, ports=[PORT])
    client.start(ports=[PORT])
    client.wait_on_traffic(ports=[PORT])
    print("sent", client.get_stats()[PORT]["opackets"], "packets")
finally:
    client.disconnect()

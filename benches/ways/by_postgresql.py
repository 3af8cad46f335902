"""The papers' way: import every packet into PostgreSQL, join by signature, percentile_disc.

The signature is bytes 12 to 63 of the frame with the IPv4, UDP and TCP checksums set to zero. The
cluster is a fresh one that does not wait for the disk. Rows arrive through a binary COPY, which
is the fastest that PostgreSQL has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benches.timing import Answer
from benches.traffic import PERCENTILES, SECOND_NS, Pair
from benches.ways.by_numpy import PCAP_HEADER_BYTES

HEADER = struct.Struct("<4I")
NONE = bytes(2)
TCP, UDP = 6, 17

TABLE = """
DROP TABLE IF EXISTS {table};
CREATE TABLE {table} (ns bigint NOT NULL, signature bytea NOT NULL);
"""
# Signatures that occur more than once before the device are left out; copies after it count.
QUERY = """
WITH once AS (
    SELECT signature, min(ns) AS ns FROM before GROUP BY signature HAVING count(*) = 1
)
SELECT percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY after.ns - once.ns)
FROM once JOIN after USING (signature)
WHERE after.ns > once.ns AND after.ns < once.ns + 5000000000
"""


@dataclass(frozen=True)
class PostgreSQL:
    """Evaluates in the database at `address`."""

    address: str

    def from_captures(self, pair: Pair) -> Answer:
        """From the captures to the percentiles; the tables stay."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            for table, capture in (("before", pair.ingress), ("after", pair.egress)):
                for statement in TABLE.format(table=table).strip().splitlines():
                    connection.execute(statement)
                copying = f"COPY {table} FROM STDIN (FORMAT binary)"
                with connection.cursor() as cursor, cursor.copy(copying) as copy:
                    copy.set_types(["int8", "bytea"])
                    for row in _rows(capture):
                        copy.write_row(row)
                connection.execute(f"ANALYZE {table}")
        return self.query(pair)

    def query(self, _pair: Pair) -> Answer:
        """The query alone, over the pair that was loaded last."""
        with psycopg.connect(self.address) as connection:
            row = connection.execute(QUERY, [list(PERCENTILES)]).fetchone()
        assert row is not None
        return Answer(row[0])


def _rows(capture: Path) -> Iterator[tuple[int, bytes]]:
    """Stamp in nanoseconds and signature of each packet of a nanosecond pcap."""
    with capture.open("rb") as file:
        file.seek(PCAP_HEADER_BYTES)
        while header := file.read(HEADER.size):
            seconds, ns, captured, _ = HEADER.unpack(header)
            yield seconds * SECOND_NS + ns, _signature(bytearray(file.read(captured)))


def _signature(frame: bytearray) -> bytes:
    if frame[12:14] == b"\x08\x00":
        frame[24:26] = NONE
        transport = 14 + 4 * (frame[14] & 0x0F)
        if frame[23] == UDP:
            frame[transport + 6 : transport + 8] = NONE
        elif frame[23] == TCP:
            frame[transport + 16 : transport + 18] = NONE
    return bytes(frame[12:64])

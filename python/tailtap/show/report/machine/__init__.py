"""A map of the machine that runs were made on: what it consists of, and what ran where.

`tree.py` nests what the environment says of CPUs, caches, NUMA nodes and sockets; `placement.py`
finds who worked on which CPU, and what crosses from one node to another; `drawing.py` gives each
part its place; `maps.py` finds the runs that one map is of.
"""

from __future__ import annotations

from tailtap.show.report.machine.maps import Map, maps_of

__all__ = ["Map", "maps_of"]

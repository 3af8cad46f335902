"""Result trees of the testbed service pos, and crates of its RISE profile, as runs to import.

`tree.py` finds trees and the `.loop` files of their hosts; `crate.py` reads what a crate says of
the experiment; `hosts.py` what is known of the hosts; `runs.py` makes runs of all that, and looks
for the results of each (`run.py`); `variables.py` knows what loop variables mean, `moongen.py` what
the load generator leaves.
"""

from __future__ import annotations

from tailtap.results.importers.pos.runs import PosTree, find_pos_trees

__all__ = ["PosTree", "find_pos_trees"]

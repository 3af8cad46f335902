"""How generator, taps and DuT are wired together.

A topology is a graph (`graph.py`), which is data: `smallest.py` makes that of one DuT between two
links, and of a line. Pure functions number its ports (`numbering.py`) and compile it to the
resources of a machine (`compiler.py`), and a lab (`lab.py`) makes these and removes them.
"""

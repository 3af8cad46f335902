"""Connected graphs of nodes, and flows that pass them, for property tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

Paths = Mapping[str, Sequence[str]]


class Made(NamedTuple):
    nodes: Sequence[str]
    links: Sequence[tuple[str, str]]
    paths: Paths


@st.composite
def networks(draw: st.DrawFn, most_nodes: int = 100, most_flows: int = 40) -> Made:
    """A connected graph, with simple paths through it for some flows."""
    count = draw(st.integers(1, most_nodes))
    nodes = [f"n{number}" for number in range(1, count + 1)]
    # A tree, so that all is connected, and some more links.
    joined = {(draw(st.integers(0, place - 1)), place) for place in range(1, count)}
    ends = st.integers(0, count - 1)
    more = draw(st.lists(st.tuples(ends, ends), max_size=count))
    joined |= {(min(pair), max(pair)) for pair in more if pair[0] != pair[1]}
    beside: dict[int, list[int]] = {place: [] for place in range(count)}
    for one, other in sorted(joined):
        beside[one].append(other)
        beside[other].append(one)
    paths = {}
    random = draw(st.randoms(use_true_random=False))
    for number in range(1, draw(st.integers(1, most_flows)) + 1):
        path = [random.randrange(count)]
        longest = random.randint(1, count)
        while len(path) < longest:
            further = [place for place in beside[path[-1]] if place not in path]
            if not further:
                break
            path.append(random.choice(further))
        paths[f"f{number}"] = [nodes[place] for place in path]
    return Made(nodes, [(nodes[one], nodes[other]) for one, other in sorted(joined)], paths)

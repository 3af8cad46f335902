"""The order in which partial evaluations are merged."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tailtap.analysis.evaluation.many import Place, Tree

Span = list[int]


@given(st.integers(1, 200), st.integers(2, 9), st.randoms(use_true_random=False))
def test_pieces_are_merged_side_by_side_whatever_their_order(
    pieces: int, fan_in: int, random: Random
) -> None:
    """Every merge gets neighbours in order, at most `fan_in`, and the last one makes the whole."""
    tree: Tree[Span] = Tree(pieces, fan_in)
    arriving = [(Place(0, number), [number]) for number in range(pieces)]
    whole = None
    while arriving:
        assert whole is None
        place, span = arriving.pop(random.randrange(len(arriving)))
        ready = tree.add(place, span)
        if ready is None:
            continue
        where, parts = ready
        assert 1 <= len(parts) <= fan_in
        joined = [number for part in parts for number in part]
        assert joined == list(range(joined[0], joined[-1] + 1))
        if len(parts) == 1:
            assert where == tree.root
            whole = joined
        else:
            arriving.append((where, joined))
    assert whole == list(range(pieces))

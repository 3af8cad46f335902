"""Why packets of a run were late; docs/explanation/causes.md is the model.

A late packet's way through the modules: `late` (which packets, what usual ones are, and the nodes
that they pass on the same cores), `trace` (what the run's trace says of itself, and its records),
`taxonomy` (what its owners are called), `joined` (parts, stalls and queues, by `tailtap._core`),
`claims` (against chance, and periods), `labels` (each packet's cause, and the tail without one),
`remedies` (which knobs may help), all called by `explain`. `record` says it. `many` does so with
all runs that are asked for, perhaps on a cluster, and writes the files.
`stored` has it again for reports and exports, with `shares` (what makes each percentile), and
`lanes` (what stood on the cores meanwhile).
"""

from tailtap.analysis.causes.explain import Explained
from tailtap.analysis.causes.many import explain_runs

__all__ = ["Explained", "explain_runs"]

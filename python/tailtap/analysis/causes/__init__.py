"""Why packets of a run were late; docs/explanation/causes.md is the model.

A late packet's way through the modules: `late` (which packets, and what usual ones are), `trace`
(what the run's trace says of itself), `segments` (the nodes that packets pass on the same cores),
`taxonomy` (what its owners are called), `joined` (parts, stalls and queues, by `tailtap._core`),
`claims` (against chance), `wanted` (whose core was taken), `labels` (each packet's cause),
`periods`, `remedies` (which knobs may help), `without` (the tail without a cause's time), `control`
(what the trace itself cost), all called by `explain`. `record`, `words` and `stalls` say it. `many`
does so with all runs that are asked for, perhaps on a cluster, and writes the files.
`stored` has it again for reports and exports, with `shares` (what makes each percentile), and
`events` and `lanes` (what stood on the cores meanwhile).
"""

from tailtap.analysis.causes.explain import Explained
from tailtap.analysis.causes.many import explain_runs

__all__ = ["Explained", "explain_runs"]

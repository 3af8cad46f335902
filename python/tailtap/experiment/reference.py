"""The reference of experiment files, made from the model and the kinds.

`python -m tailtap.experiment.reference` prints it, with the kinds of all installed packages; a
test compares it with docs/reference/experiment.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from tailtap.analysis.claims.model import Claim
from tailtap.analysis.figures.model import Along, Beside, Figure, Scale
from tailtap.base.registry import Registry
from tailtap.experiment.dut import Dut
from tailtap.experiment.fields import default_text, example_text, models_in, type_text
from tailtap.experiment.model import Experiment
from tailtap.experiment.sections import Event, Matching, Without
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators import GENERATORS
from tailtap.lab.generators.external import External
from tailtap.lab.generators.flows import Flows, Replay
from tailtap.lab.generators.model import Traffic
from tailtap.lab.generators.pattern import PATTERNS
from tailtap.lab.instruments.events import Events
from tailtap.lab.instruments.interrupts import Counted, Sampling
from tailtap.lab.instruments.taps.kinds import TAPS, Taps
from tailtap.lab.neighbours import NEIGHBOURS
from tailtap.lab.platforms import PLATFORMS

_CHECK = "tailtap run FILE --check"
_SET = "--set"
_VALUE = "--set traffic.rate='20 kpkt/s'"
HEAD = f"""# Experiment files

For authors of experiments.

Made from the program by `make docs`; a test fails when it is stale.

An experiment file says what is sent through which device, and how often. It is YAML without tags,
anchors and duplicate keys. An unknown key or a wrong unit is an error that names the line.

```yaml
name: container-vs-bare-metal
dut: {{forwarder: tc-mirred, cpus: [1]}}
traffic: {{rate: 10 kpkt/s, size: 64 B, duration: 10 s, warm_up: 1 s, cpu: 0}}
vary:
  dut.platform: [wire, bare-metal, container]
repeat: 3
require: ["p99.9 < 1 ms", "loss == 0"]
```

`sudo tailtap run FILE` makes its runs. `{_CHECK}` says which of them this machine
cannot make. `{_SET} PATH=VALUE` replaces one value, such as `{_VALUE}`.

**Quantities** are numbers with a unit. Packet rates: pkt/s, kpkt/s, Mpkt/s. Sizes: B, kB, KiB, MB,
MiB, GB, GiB. Times: ns, us, ms, s, min, h.

**Key paths** name a value by its keys, with dots in between: `dut.platform`. `vary`, `cases`,
`exclude`, `scales` and `{_SET}` use them. In `vary`, `cases` and `exclude` they begin with `dut`,
`traffic`, `tap` or `evaluation`, or are `trace`.

**Editors** complete and check the file by its JSON Schema,
[experiment.schema.json](experiment.schema.json). With the YAML language server, which many editors
use, write the path of the schema into the first line of the file:

```yaml
# yaml-language-server: $schema=docs/reference/experiment.schema.json
```

`python -m tailtap.experiment.json_schema` prints the schema of the installed version, with the
kinds of other packages that are installed ([kinds.md](kinds.md)).
`python -m tailtap.experiment.reference` prints this page in the same way.

In brackets behind each key stands what it takes, and its default.
"""


PLAIN = ("`", "whole number", "time", "size", "packet rate", "CPU number")
"""Types that need no example: how they begin."""


def reference() -> str:
    """The page as Markdown."""
    parts = [HEAD, "## The file", _list(Experiment)]
    parts += ["In `counters`:", _list(Events, "counters.")]
    parts += ["In `interrupts`:", _list(Counted, "interrupts.")]
    parts += ["In `interrupts.counters`:", _list(Sampling, "interrupts.counters.")]
    parts += ["In `events`, below each `-`:", _list(Event, "events.")]
    parts += ["In `claims`, below each `-`:", _list(Claim, "claims.")]
    parts += ["In `figures`, below each `-`:", _list(Figure, "figures.")]
    parts += ["In `panels`, `series` and `over`, where these are mappings:"]
    parts += [_list(Along, "figures.series."), "In `axes.x` and `axes.y`:"]
    parts += [_list(Scale, "figures.axes.y."), "In `beside`:", _list(Beside, "figures.beside.")]
    parts += ["## dut", "The device under test (DuT)."]
    parts += [_list(Dut, "dut."), "In `dut.tuning`:", _list(Without, "dut.tuning.")]
    parts += ["The platform has further keys, which stand beside these."]
    first_of: dict[str, str] = {}
    for name, platform in PLATFORMS.working():
        parts += [f"### Platform {name}", _about(platform)]
        parts += list(_own(f"Platform {name}", platform.Options, "dut.", first_of))
    for name, forwarder in FORWARDERS.working():
        parts += [f"### Forwarder {name}", _about(forwarder)]
        parts += list(_options(f"Forwarder {name}", forwarder.Options, "dut.options.", first_of))
    parts += ["### Neighbours", "In `dut.neighbours`, below a name and a kind."]
    for name, neighbour in NEIGHBOURS.working():
        parts += [f"#### Neighbour {name}", _about(neighbour)]
        below = "dut.neighbours.NAME.KIND."
        parts += list(_own(f"Neighbour {name}", neighbour.Options, below, first_of))
    parts += ["## traffic", "What is sent: UDP packets with ids.", _list(Traffic, "traffic.")]
    parts += ["### Generators", _kinds(GENERATORS)]
    for name, generator in GENERATORS.working():
        if generator.Options.model_fields:
            parts += [f"### Generator {name}", _about(generator)]
            parts += list(
                _options(f"Generator {name}", generator.Options, "traffic.options.", first_of)
            )
    parts += ["### traffic.external", _list(External, "traffic.external.")]
    parts += ["### Patterns", "As a mapping, `kind` is the name of the pattern."]
    for name, pattern in PATTERNS.items():
        meaning = str(pattern.model_fields["kind"].description)
        parts += [f"**{name}**: {meaning}", _list(pattern, "traffic.pattern.", ("kind",))]
    parts += [
        "### traffic.flows",
        "Addresses and ports as ranges.",
        _list(Flows, "traffic.flows."),
    ]
    parts += ["### traffic.replay", _list(Replay, "traffic.replay.")]
    parts += ["## tap", _list(Taps, "tap."), "### Taps", _kinds(TAPS)]
    parts += ["## evaluation", _list(Matching, "evaluation.")]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _about(row: Any) -> str:
    return f"{row.summary} {row.documentation}"


def _kinds(kinds: Registry[Any]) -> str:
    """The rows of a registry as a list."""
    first: dict[str, str] = {}
    lines = []
    for name, row in kinds.working():
        other = first.setdefault(row.documentation, name)
        about = _about(row) if other == name else f"{row.summary} The rest is as with `{other}`."
        lines.append(f"- `{name}`: {about}")
    return "\n".join(lines)


def _options(
    kind: str, model: type[BaseModel], prefix: str, first_of: dict[str, str]
) -> Iterator[str]:
    """The tables of a kind's options and of the models in them."""
    yield from _own(kind, model, prefix, first_of)
    for name, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            yield f"In `{prefix}{name}`:"
            yield _list(inner, f"{prefix}{name}.")


def _own(kind: str, model: type[BaseModel], prefix: str, first_of: dict[str, str]) -> Iterator[str]:
    """The options of a kind. Those that an earlier one has in the same words are only named;
    `first_of` has the kind of each one that is on the page.
    """
    rows = list(_keys(model, prefix))
    first = {row: first_of.setdefault(row, kind) for row in rows}
    for other in dict.fromkeys(first.values()):
        if other != kind:
            names = ", ".join(row.split("`")[1] for row in rows if first[row] == other)
            yield f"As of [{other}](#{other.lower().replace(' ', '-')}): `{names}`."
    yield "\n".join(row for row in rows if first[row] == kind)


def _list(model: type[BaseModel], prefix: str = "", without: tuple[str, ...] = ()) -> str:
    """A line for each field of a model; empty for a model without fields."""
    return "\n".join(_keys(model, prefix, without))


def _keys(model: type[BaseModel], prefix: str, without: tuple[str, ...] = ()) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name in without:
            continue
        kind, default = type_text(field), default_text(field)
        examples = ", ".join(f"`{example_text(value)}`" for value in field.examples or ())
        such = f" E.g. {examples}." if examples and not kind.startswith(PLAIN) else ""
        kind = kind.replace("` or `", "`|`").removeprefix("whole number, ")
        if field.is_required():
            kind += "; required"
        elif default is not None:
            kind += f"; default `{default}`"
        yield f"- `{prefix}{field.alias or name}` ({kind}): {field.description or ''}{such}"


if __name__ == "__main__":
    print(reference(), end="")

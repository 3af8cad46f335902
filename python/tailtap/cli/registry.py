"""The commands: their modules and one line about each, in the order of `tailtap --help`.

A module is imported when its command runs, so that no command waits for what another one needs.
It holds a command (`tailtap.cli.command`) of its own name. A name of two words is a command of a
group, which `GROUPS` describes.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A command."""

    module: str
    summary: str
    """What the docstring of the module says too."""


COMMANDS = {
    "run": Row("run", "make the measurements of an experiment file"),
    "observe": Row("observe", "measure a device that is in service, as it is"),
    "search": Row("search", "find the highest rate at which no more is lost than allowed"),
    "improve": Row("improve", "try what may lower the tail, and show what does"),
    "evaluate": Row("evaluate", "match two captures and show the tail of the latency"),
    "report": Row("report", "write a page and figures about an experiment folder"),
    "explain": Row("explain", "say why packets of a run were late"),
    "model": Row("model", "predict the tail of a run on a longer horizon"),
    "interrupts": Row("interrupts", "say which interrupts rise where packets are late"),
    "verdict": Row("verdict", "say whether runs meet their requirements"),
    "compare": Row("compare", "rank configurations by their tail"),
    "history add": Row("history.add", "put the runs of a commit into a history"),
    "history show": Row("history.show", "say at which commits the tail changed"),
    "reproduce": Row("reproduce", "repeat what was published, and compare"),
    "export": Row("export", "write results in the formats of other programs"),
    "publish": Row("publish", "make a site that others can read, check and run again"),
    "import": Row("import_", "read published result files"),
    "bmc": Row("bmc", "serve IPMI for containers and guests"),
    "doctor": Row("doctor", "check what this machine can measure"),
    "host audit": Row("host.audit", "judge what on this machine adds tail latency"),
    "host apply": Row("host.apply", "set what can be set while the machine runs"),
    "host revert": Row("host.revert", "put back what `tailtap host apply` has set"),
    "host bootline": Row("host.bootline", "print or install the kernel's command line"),
    "host noise": Row("host.noise", "measure what takes cores that nobody asks for anything"),
    "host export": Row("host.export", "write the table of knobs for programs that tune hosts"),
    "testbed check": Row("testbed.check", "find out whether cables are as a testbed file says"),
    "testbed power": Row("testbed.power", "switch a host of a testbed on and off"),
    "testbed boot": Row(
        "testbed.boot", "boot a host of a testbed with a kernel and its parameters"
    ),
    "testbed console": Row("testbed.console", "show the serial console of a host of a testbed"),
    "testbed image": Row("testbed.image", "make a live image that hosts of a testbed boot"),
    "clean": Row("clean", "undo what a crashed tailtap left changed on the machine"),
    "generate": Row("generate", "send traffic with unique ids"),
    "tap": Row("tap", "stamp or capture every packet that passes a link"),
    "trace": Row("trace", "record what the kernel does on chosen CPUs"),
    "forward": Row("forward", "forward packets and inject known faults"),
    "load": Row("load", "load a CPU as a neighbour does"),
    "completion": Row("completion", "print the completion script of a shell"),
}
GROUPS = {
    "history": "watch the tail from commit to commit",
    "host": "tune this machine for low latency, and put it back",
    "testbed": "ask the machines of a testbed, and boot them",
}


def listed(group: str = "") -> dict[str, str]:
    """Each word that may follow `tailtap` and the `group`, with its summary."""
    prefix = f"{group} " if group else ""
    found: dict[str, str] = {}
    for name, row in COMMANDS.items():
        if name.startswith(prefix):
            word, _, more = name.removeprefix(prefix).partition(" ")
            found[word] = GROUPS[word] if more else row.summary
    return found

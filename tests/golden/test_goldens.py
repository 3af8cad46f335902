"""What commands say of fixed folders is what is stored; README.md says how it is written anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from goldens import Story
from made_records import rewrite

from tests.golden import folders
from tests.golden.folders import REQUIRED

FORMATS = ("csv", "hgrm", "hlog", "github-action-benchmark", "papers", "pos")


def reported(story: Story, name: str, folder: str) -> None:
    """The page of a folder, and what its figures draw."""
    story.json(f"report {name}".strip(), "report", folder)
    story.page(f"report {name}".strip(), f"{folder}/report/index.html")


def printed(story: Story, folder: str) -> None:
    """What the figures of the experiment's file are drawn from."""
    story.json("report printed", "report", folder, "--print", "--out", "printed")
    story.files("printed", "printed", "*.csv")


def own(story: Story) -> None:
    reported(story, "", "own")
    story.run("compare", "compare", "own", as_json=True)
    story.run("model refused", "model", "own/runs/001-wire-10000-1", as_json=True)
    story.run("verdict", "verdict", "own", "--junit", "verdict.xml", as_json=True)
    profile = ("verdict", "own/runs/001-wire-10000-1", "--profile", "urllc-5g")
    story.run("verdict profile", *profile)
    story.run("verdict allowed", *profile, "--allow-not-shown")
    for kind in FORMATS:
        story.json(f"export {kind}", "export", "own", "--to", kind, "--out", f"exported/{kind}")
    story.files("exported", "exported")
    printed(story, "own")


def ranked(story: Story) -> None:
    story.run("compare", "compare", "ranked", as_json=True)


def modelled(story: Story) -> None:
    story.run("model", "model", "modelled", as_json=True)
    story.run("model papers", "model", "modelled", "--method", "papers")
    story.run("verdict", "verdict", "modelled", *REQUIRED, as_json=True)
    reported(story, "", "modelled")
    printed(story, "modelled")
    rewrite(story.folder / "modelled/runs/002-container-10000-2/run.json", valid=False)
    story.run("model invalid", "model", "modelled", "--figures")


def captured(story: Story) -> None:
    pair = ("captured/in.pcap", "captured/out.pcap")
    clocks = ("captured/clocks/ingress.stamps", "captured/clocks/egress.stamps")
    back = ("captured/clocks/back-before.stamps", "captured/clocks/back-after.stamps")
    story.run(
        "evaluate",
        "evaluate",
        *pair,
        "--losses",
        "5",
        "--by",
        "flow",
        "--out",
        "pair",
        as_json=True,
    )
    story.run("evaluate papers", "evaluate", *pair, "--percentiles", "papers", "--worst", "5")
    story.run("evaluate clocks", "evaluate", *clocks, "--back", *back, "--out", "clocks",
              as_json=True)  # fmt: skip
    story.run("evaluate transactions", "evaluate", "captured/both.pcap", "--out", "waits",
              as_json=True)  # fmt: skip
    both, waits = "captured/both.pcap", ("verdict", "waits/dns")
    story.run("evaluate both ways", "evaluate", both, "captured/server.pcap")
    story.json("evaluate back", "evaluate", both, "captured/server.pcap", "--direction", "back")
    story.run("evaluate sides", "evaluate", "captured/asks.pcap", "captured/says.pcap")
    story.run("evaluate again", "evaluate", both, "--out", "waits", "--window", "2 s")
    story.run("verdict waits", *waits, "--require", "p50 < 301 us", "--require", "loss == 0")
    story.run("model waits", "model", "waits/icmp-echo")
    story.run("evaluate interval", "evaluate", *clocks, "--egress-ahead", "5 ms..5.4 ms", "--out",
              "interval")  # fmt: skip
    story.json("report interval", "report", "interval")
    elsewhere = ("evaluate", pair[0], "captured/tagged.pcap", "--out", "elsewhere", "--key-after")
    for name, at in (("evaluate elsewhere", "46:4:le"), ("evaluate elsewhere again", "47:4:le")):
        story.run(name, *elsewhere, at, "--key", "42:4:le")
    rule = ("captured/flows.pcap", "captured/dropping.pcap", "--by", "flow", "--out", "rule")
    story.run("evaluate rule", "evaluate", *rule, as_json=True)
    story.files("pair", "pair", "none")
    samples = ("interrupts", "pair", "--samples", "captured/irq.csv", "--figures")
    story.run("interrupts", *samples, as_json=True)
    story.run("model", "model", "pair", "--fit", "50 %", as_json=True)
    story.run("model clocks", "model", "clocks")
    story.run("verdict", "verdict", "pair", *REQUIRED, as_json=True)
    story.run("verdict clocks", "verdict", "clocks", "--require", "p90 < 1 ms", "--require",
              "p90 < 51 us")  # fmt: skip
    story.run("compare", "compare", "a=pair", "b=waits/icmp-echo", as_json=True)
    story.json("evaluate tagged", "evaluate", pair[0], "captured/tagged.pcap", "--out", "tagged")
    for name in ("pair", "clocks", "waits/dns", "tagged", "rule"):
        reported(story, name.replace("/", " "), name)
    story.json("export csv", "export", "waits/dns", "--to", "csv", "--out", "exported")
    story.files("exported", "exported")


def traced(story: Story) -> None:
    story.run("explain", "explain", "traced", as_json=True)
    story.json("explain ticks", "explain", "traced/runs/001-traced", "--late", "5 us")
    story.run("explain briefly", "explain", "traced", "--brief", "--late", "100 us")
    reported(story, "", "traced")
    story.json("evaluate", "evaluate", "traced")
    story.json("verdict undisturbed", "verdict", "traced", "--require", "p99 < 1 ms",
               "--undisturbed")  # fmt: skip
    sides = (f"{name}=traced/runs/00{place}-traced" for place, name in ((1, "a"), (2, "b")))
    story.run("compare undisturbed", "compare", *sides, "--undisturbed", as_json=True)
    story.json("export csv", "export", "traced", "--to", "csv", "--out", "exported")
    story.files("exported", "exported")


def explained(story: Story) -> None:
    story.run("explain", "explain", story.name, as_json=True)
    reported(story, "", story.name)


def line(story: Story) -> None:
    story.run("evaluate", "evaluate", "line")
    story.json("evaluate percentiles", "evaluate", "line", "--percentiles", "99,99.9")
    reported(story, "", "line")
    story.json("export csv", "export", "line", "--to", "csv", "--out", "exported")
    story.files("exported", "exported")


def observed(story: Story) -> None:
    story.run("verdict", "verdict", "observed", *REQUIRED, as_json=True)
    reported(story, "", "observed")


def searched(story: Story) -> None:
    reported(story, "", "searched")
    story.run("verdict", "verdict", "searched", "--require", "p99 < 1 ms", as_json=True)


def drawn(story: Story) -> None:
    reported(story, "", "drawn")
    printed(story, "drawn")
    story.run("interrupts", "interrupts", "drawn", as_json=True)


def lossy(story: Story) -> None:
    reported(story, "", "lossy")
    story.run("compare", "compare", "lossy", as_json=True)
    story.run("export", "export", "lossy", "--to", "csv", "--out", "exported")


def read(story: Story) -> None:
    reported(story, "", "read")
    story.run("compare", "compare", "read", as_json=True)


def flows(story: Story) -> None:
    reported(story, "", "flows")


def placed(story: Story) -> None:
    reported(story, "", "placed")
    reported(story, "ablation", "placed/ablation")


def mixed(story: Story) -> None:
    reported(story, "", "mixed/experiment")
    story.run("compare", "compare", "mixed/experiment")


def published(story: Story) -> None:
    story.json("export papers", "export", "published", "--to", "papers", "--out", "tree")
    story.run("import", "import", "tree", "--into", "results")
    story.json("import again", "import", "tree", "--into", "results")
    reported(story, "", "results")
    story.run("compare", "compare", "results", as_json=True)
    story.run("verdict", "verdict", "results", "--require", "p99 < 1 ms", as_json=True)
    for name in ("model", "interrupts", "explain", "evaluate"):
        story.run(name, name, "results")
    story.run("reproduce", "reproduce", "tree")
    for kind in ("csv", "hgrm", "papers"):
        story.run(f"export {kind}", "export", "results", "--to", kind, "--out", f"exported/{kind}")
    story.files("exported", "exported")


def pos(story: Story) -> None:
    for tree in ("old", "new"):
        story.run(f"import {tree}", "import", f"pos/{tree}", "--into", f"results-{tree}",
                  as_json=True)  # fmt: skip
        reported(story, tree, f"results-{tree}")
        story.run(f"model {tree}", "model", f"results-{tree}")
        story.run(f"compare {tree}", "compare", f"results-{tree}")
    story.run("reproduce", "reproduce", "pos/new", as_json=True)


def strange(story: Story) -> None:
    for tree in ("files", "old", "new"):
        story.json(f"import {tree}", "import", f"strange/{tree}", "--into", f"results-{tree}")
        story.json(f"export {tree}", "export", f"results-{tree}", "--to", "csv", "--out",
                   f"exported/{tree}")  # fmt: skip
    story.files("exported", "exported")


def tools(story: Story) -> None:
    story.run("import", "import", "tools", "--into", "results", as_json=True)
    reported(story, "", "results")
    story.run("verdict", "verdict", "results", "--require", "p99 < 1 ms")
    story.json("export csv", "export", "results", "--to", "csv", "--out", "exported")
    story.files("exported", "exported")


def broken(story: Story) -> None:
    commands: dict[str, tuple[str, ...]] = {
        "compare": (), "verdict": ("--require", "p99 < 1 ms"), "model": (), "explain": (),
        "interrupts": (), "export": ("--to", "csv", "--out", "exported"), "evaluate": (),
    }  # fmt: skip
    reported(story, "", "broken")
    story.run("verdict untraced", "verdict", "broken/runs/001-bare-metal", "--require", "p99 < 1 s",
              "--undisturbed")  # fmt: skip
    for name, options in commands.items():
        story.run(name, name, "broken", *options, as_json=name in ("compare", "verdict"))
        story.run(f"{name} nothing", name, "nothing", *options)
    record = story.folder / "broken/runs/001-bare-metal/run.json"
    record.write_text('{"schema": "tailtap.run/1"')
    for name, options in commands.items():
        story.run(f"{name} damaged", name, "broken", *options)


def described(story: Story) -> None:
    for name in ("network", "quickstart", "patterns"):
        story.plan(name, f"described/{name}.yaml")


def other(story: Story) -> None:
    story.run("profiles", "verdict", "--list-profiles", as_json=True)


STORIES: Mapping[str, Callable[[Story], None]] = {
    "improved": explained,
    "guest": explained,
    **{tell.__name__: tell for tell in (
        own, ranked, modelled, captured, traced, line, observed, searched, drawn, lossy, read,
        flows, placed, mixed, published, pos, strange, tools, broken, described, other,
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_commands_say_what_is_stored(name: str, tmp_path: Path) -> None:
    story = Story(name, tmp_path)
    folders.FOLDERS[name](tmp_path / name)
    STORIES[name](story)
    story.check()

"""A published experiment of six runs, with its stamps and two claims."""

from __future__ import annotations

from pathlib import Path

from comparisons import write_run

from tailtap.show.publish import Options, publish

FILE = """\
name: published
dut: {cpus: [1]}
traffic: {rate: 10 kpkt/s, size: 64 B, duration: 400 ms, cpu: 0}
vary: {dut.platform: [bare-metal, container]}
repeat: 3
claims:
  - id: later
    says: A container is later.
    for: {dut.platform: container}
    against: {dut.platform: bare-metal}
    at: p99
    is: worse
  - {id: quick, says: It is in time., for: {dut.platform: container}, require: [p99 < 10 ms]}
"""


def write_experiment(experiment: Path, text: str = FILE) -> None:
    for number in range(1, 7):
        platform, scale = (("container", 4.0), ("bare-metal", 1.0))[number % 2]
        variables = {"dut.platform": platform}
        write_run(
            experiment, number, variables, scale=scale, repeat=(number + 1) // 2, packets=4_000
        )
    (experiment / "experiment.yaml").write_text(text)


def write_site(folder: Path, text: str = FILE, *, embed: bool = True) -> Path:
    """An experiment in `folder`/experiment, published as `folder`/site."""
    experiment = folder / "experiment"
    write_experiment(experiment, text)
    publish(experiment, folder / "site", Options(embed=embed))
    return folder / "site"

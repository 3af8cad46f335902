"""Examples for generators and forwarders of others: that they are read, filled in, and programs.

Only trafgen is packaged for Debian; it is run in the lab tests. MoonGen, TRex, pktgen, libmoon and
Snort are not at hand, so that whether they do what their documentation says is not tested here.
"""

from __future__ import annotations

import py_compile
import subprocess
from pathlib import Path

import pytest

from tailtap.base.schema import fill_in
from tailtap.experiment.reading import read_experiment
from tailtap.lab.forwarders.commands import ExternalOptions
from tailtap.lab.generators.external import _words

EXAMPLES = Path(__file__).parents[4] / "examples/external"
FOLDER = "examples/external"

TRAFGEN = (
    f"python3 {FOLDER}/trafgen.py 10000 64 | trafgen --in - --dev tt-gen --num 10000 "
    "--gap 100000ns --cpus 1 --no-sock-mem --notouch-irq"
)
MOONGEN = (
    f'"$MOONGEN/build/MoonGen" --dpdk-config={FOLDER}/moongen-dpdk.lua {FOLDER}/moongen.lua '
    "--rate 10000 --packets 100000 --size 64"
)
COMMANDS = {
    "trafgen": ["sh", "-c", TRAFGEN],
    "moongen": ["env", "PORT=tt-gen", "sh", "-c", MOONGEN],
    "trex": [f"{FOLDER}/trex.sh", "tt-gen", "10000", "100000", "64"],
    "pktgen": [f"{FOLDER}/pktgen.sh", "tt-gen", "0", "10000", "100000", "64"],
}
LIBMOON = (
    f'exec "$LIBMOON/build/libmoon" --dpdk-config={FOLDER}/libmoon-dpdk.lua '
    '"$LIBMOON/examples/l2-forward.lua" 0 1'
)
SNORT = "snort -Q --daq afpacket -i tt-in:tt-out -c /etc/snort/snort.lua -l /var/log/run"
FORWARDERS = {
    "libmoon": ["env", "INGRESS=tt-in", "EGRESS=tt-out", "sh", "-c", LIBMOON],
    "snort": SNORT.split(),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {*COMMANDS, *FORWARDERS}


@pytest.mark.parametrize("name", FORWARDERS)
def test_commands_of_forwarders_are_filled_in(name: str) -> None:
    [(_, experiment)] = read_experiment(EXAMPLES / f"{name}.yaml").combinations
    options = ExternalOptions.model_validate(experiment.dut.options)
    places = {"ingress": "tt-in", "egress": "tt-out", "folder": "/var/log/run"}
    assert options.command is not None
    assert fill_in(options.command, places) == FORWARDERS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_filled_in(name: str) -> None:
    [(_, experiment)] = read_experiment(EXAMPLES / f"{name}.yaml").combinations
    assert experiment.traffic.generator == "external"
    assert _words("tt-gen", experiment.traffic) == COMMANDS[name]
    # What is called by its path is there and can be run.
    program = Path(__file__).parents[4] / COMMANDS[name][0]
    assert program.stat().st_mode & 0o111 if "/" in COMMANDS[name][0] else True


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_scripts_are_programs(script: Path, tmp_path: Path) -> None:
    match script.suffix:
        case ".lua":
            subprocess.run(["luac5.1", "-p", str(script)], check=True)
        case ".sh":
            subprocess.run(["sh", "-n", str(script)], check=True)
        case ".py":
            py_compile.compile(str(script), cfile=str(tmp_path / "compiled"), doraise=True)
        case suffix:
            assert suffix == ".yaml"


def test_pktgen_says_when_the_kernel_has_none() -> None:
    if Path("/proc/net/pktgen").exists():
        pytest.skip("this kernel has pktgen")
    command = [str(EXAMPLES / "pktgen.sh"), "tt-none", "0", "1", "1", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "CONFIG_NET_PKTGEN" in done.stdout

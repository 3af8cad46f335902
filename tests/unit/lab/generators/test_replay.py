"""Captures in experiment files: what is taken from them, and what does not go with them."""

from __future__ import annotations

import py_compile
import re
import struct
import subprocess
from pathlib import Path

import pytest
from captures import erf

from tailtap.base.errors import InputError
from tailtap.base.schema import fill_in
from tailtap.experiment.reading import read_experiment
from tailtap.lab.forwarders.commands import ExternalOptions
from tailtap.lab.generators.external import _words
from tailtap.lab.generators.flows import Sending
from tailtap.lab.generators.model import Traffic
from tailtap.lab.generators.own import OwnGenerator
from tailtap.remote.local import LocalHost

GAP_US = 2_000


def frame(*, protocol: int = 17, kind: int = 0, size: int = 96) -> bytes:
    """Ethernet, IPv4 and UDP of `size` bytes; with the id 5 when `kind` is 0x55."""
    payload = struct.pack("<IB", 5, kind).ljust(size - 42, b"\0")
    udp = struct.pack(">HHHH", 1024, 53, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH8x", 0x45, 0, 20 + len(udp), 0, 0, 64, protocol, 0)
    return bytes(12) + b"\x08\x00" + ip + udp


def write(path: Path, *frames: bytes, linktype: int = 1) -> Path:
    """A capture with a packet every 2 ms."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, linktype)
    for number, packet in enumerate(frames):
        data += struct.pack("<IIII", 1_000, GAP_US * number, len(packet), len(packet)) + packet
    path.write_bytes(data)
    return path


def traffic(tmp_path: Path, text: str) -> Traffic:
    path = tmp_path / "e.yaml"
    path.write_text(f"name: r\ntraffic: {text}\n")
    [(_, experiment)] = read_experiment(path).combinations
    return experiment.traffic


def options(sent: Traffic) -> str:
    """The command that sends it."""
    command = OwnGenerator("af_packet")._command(LocalHost(), [Sending("port", sent)])
    return " ".join(command[command.index("generate") :])


def test_a_path_alone_is_sent_once_as_it_was_captured(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pcap", *[frame(size=200), frame(), frame(protocol=6), frame()])
    sent = traffic(tmp_path, f"{{replay: {file}}}")
    # Its own rate and length, and room for its largest packet.
    assert (sent.rate, sent.duration, sent.packets) == (500, 8_000_000, 4)
    assert sent.sizes == (204,)
    assert options(sent) == (
        "generate --json --cpu 0 port --stamp-ids --pattern constant --duration 8000000 ns "
        f"--warm-up 1000000000 ns --pause 0 ns --generator af_packet --replay {file}"
    )


def test_it_can_be_paced_and_repeated(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pcap", frame(), frame())
    sent = traffic(tmp_path, f"{{replay: {file}, duration: 1 s}}")
    assert (sent.rate, sent.packets) == (500, 500)
    paced = f"{{replay: {{file: {file}, pace: rate}}, rate: 10 kpkt/s"
    assert traffic(tmp_path, paced + "}").packets == 2
    sent = traffic(tmp_path, paced + ", duration: 1 s, pattern: {kind: burst, packets: 5}}")
    assert sent.packets == 10_000
    assert "--rate 10000 pkt/s --pattern burst:packets=5" in options(sent)


def test_ids_of_the_capture_can_be_kept(tmp_path: Path) -> None:
    file = write(tmp_path / "x.pcap", frame(kind=0x55), frame())
    sent = traffic(tmp_path, f"{{replay: {{file: {file}, ids: keep}}}}")
    assert (sent.packets, sent.warm_up) == (2, 0)
    assert "--stamp-ids" not in options(sent)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("replay: FILE, size: 64 B", "size does not go with replay"),
        ("replay: FILE, flows: 3", "flows does not go with replay"),
        ("replay: FILE, ip: 6", "ip does not go with replay"),
        ("replay: FILE, vlan: 6", "vlan does not go with replay"),
        ("replay: FILE, bidirectional: true", "bidirectional does not go with replay"),
        ("replay: FILE, rate: 5 kpkt/s", "rate needs replay: {file: …, pace: rate}"),
        ("replay: FILE, pattern: poisson", "pattern needs replay"),
        (
            "replay: {file: FILE, pace: mine}",
            "traffic.replay.pace: 'mine' is wrong, wanted: own or",
        ),
        ("replay: {pace: own}", "traffic.replay.file: this key is missing"),
        ("replay: {file: FILE, ids: keep}, warm_up: 1 s", "a warm-up needs ids of its own"),
        ("replay: {file: FILE, ids: keep}, duration: 1 s", "FILE has 2 packets and sending more"),
        ("replay: {file: NOIDS, ids: keep}", "replay: NOIDS: no packet has an id that taps read"),
        ("replay: NOUDP", "replay: NOUDP: no packet is UDP with 5 bytes of payload"),
        ("replay: TUNNEL", "TUNNEL: packet 1 was captured without its Ethernet header"),
        ("replay: x.erf", "x.erf: ERF does not say whether frames end in their check sequences"),
        ("replay: EMPTY", "EMPTY: there is no packet in the capture"),
        ("replay: none.pcap", "replay: cannot read none.pcap: No such file or directory"),
        ("replay: e.yaml", "e.yaml"),
        (
            "replay: FILE, generator: external, external: {command: x}",
            "replay is for tailtap's own generators",
        ),
    ],
)
def test_errors_are_one_line_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("FILE"), frame(kind=0x55), frame())
    write(Path("NOIDS"), frame())
    write(Path("NOUDP"), frame(protocol=6))
    write(Path("EMPTY"))
    write(Path("TUNNEL"), frame()[14:], linktype=101)
    Path("x.erf").write_bytes(erf([(10**9, frame())]))
    with pytest.raises(InputError) as caught:
        traffic(tmp_path, f"{{{text}}}")
    message = str(caught.value)
    assert said in message
    assert re.match(r".*e\.yaml:2: traffic", message)
    assert "\n" not in message


def test_a_file_that_cannot_be_replayed_leads_to_no_option_of_a_command(tmp_path: Path) -> None:
    """What mends it is a key of the file."""
    text = tmp_path / "x.pcap"
    text.write_text("this is no capture\n")
    cut = write(tmp_path / "cut.pcap", frame())
    cut.write_bytes(cut.read_bytes()[:-8])
    for path in (text, cut, write(tmp_path / "tcp.pcap", frame(protocol=6)), tmp_path / "none"):
        for ids in ("stamp", "keep"):
            with pytest.raises(InputError) as caught:
                traffic(tmp_path, f"{{replay: {{file: {path}, ids: {ids}}}}}")
            assert "traffic: replay: " in str(caught.value)
            assert not re.search(r"--(replay|format|key)", str(caught.value)), str(caught.value)


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
    "moongen-cards": [
        *("/root/MoonGen/build/MoonGen", "/root/MoonGen/examples/moonsniff/traffic-gen.lua"),
        *("1", "0", "--time", "10", "--rate", "832"),
    ],
    "trex-cards": [
        *("env", "TREX=/opt/trex/v3.06", "/root/external/trex.sh"),
        *("0000:3b:00.1", "1000000", "10000000", "64", "0000:3b:00.0"),
    ],
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
    cards = ("0000:3b:00.1", "0000:3b:00.0") if experiment.traffic.driver else None
    assert _words(Sending("tt-gen", experiment.traffic, cards)) == COMMANDS[name]
    # What is called by its path in the repository is there and can be run.
    program = Path(__file__).parents[4] / COMMANDS[name][0]
    assert program.stat().st_mode & 0o111 if COMMANDS[name][0].startswith(FOLDER) else True


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

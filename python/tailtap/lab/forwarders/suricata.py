"""`suricata`: the intrusion prevention system Suricata 7, inline between the two ports.

Packets come in at one port, are decoded, tracked as flows and matched against rules, and leave
through the other unless a rule drops them: by AF_PACKET sockets, or by DPDK. What Suricata itself
does with AF_XDP is listening: its own mode of that name has no `copy-mode`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tailtap.base.errors import Findings, InputError, MachineError, shown
from tailtap.base.schema import Matching, as_value_error
from tailtap.base.units import parse_share
from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.rules import read_set
from tailtap.lab.forwarders.setting import Asked, Need, Plain, Program, Setting, WorkFolder
from tailtap.lab.generators.flows import header_bytes
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms.dut import Dut
from tailtap.records.record import Notice

READY_SECONDS = 60.0
"""How long Suricata may take until its first packet once it has its rules."""
LOAD_SECONDS = 300.0
"""How long it may take to compile its rules: tens of thousands take half a minute."""
VERSION = re.compile(r"This is Suricata version (\S+)")
SURICATA = Need("suricata", "install Suricata 7 with `make forwarders` (Debian: suricata)")

MANY = 5000
"""Rules that never match in the set that we write."""
EVALUATED = 100
"""How many of them are evaluated for every packet."""
LONGEST = 8
"""Bytes of payload that each of them needs; with fewer, Suricata would not evaluate it."""
DROPPED_PORT = 9
"""The UDP destination port whose packets the set drops: discard (RFC 863)."""
FIRST_ID = 7_474_000
POLL_SECONDS = 0.1
"""How often the log is read until the rules are loaded."""
RING = 4096
BUFFERS = 16_383
"""Packet buffers of each port in DPDK mode; one less than a power of two fits best."""
_CONFIGURATION, _RULES = "suricata.yaml", "suricata.rules"
_ERROR = re.compile(r"^E: (.+)")
_REJECTED = re.compile(r"^E: detect: error parsing signature \"(.*)\" from file (\S+) at line")
_LOADED = re.compile(r"([0-9]+) rules successfully loaded, ([0-9]+) rules failed")
_CARRIED = re.compile(r"\((W#\S+)\) kernel: Packets ([0-9]+), dropped ([0-9]+)")
_ID = re.compile(r"\bsid: *([0-9]+)")
NAMED = 10
ADDRESSES: Mapping[str, str] = {
    "HOME_NET": "any",
    "EXTERNAL_NET": "any",
    **dict.fromkeys(
        ("HTTP_SERVERS", "SMTP_SERVERS", "SQL_SERVERS", "DNS_SERVERS", "TELNET_SERVERS",
         "DC_SERVERS", "DNP3_SERVER", "DNP3_CLIENT", "MODBUS_CLIENT", "MODBUS_SERVER",
         "ENIP_CLIENT", "ENIP_SERVER"), "$HOME_NET",
    ),
    "AIM_SERVERS": "$EXTERNAL_NET",
}  # fmt: skip
"""The groups of addresses of the configuration that Suricata comes with. Rules for one's own
network apply to all of our packets, so that all of them are inspected."""
PORTS: Mapping[str, str] = {
    "HTTP_PORTS": "80", "SHELLCODE_PORTS": "!80", "ORACLE_PORTS": "1521", "SSH_PORTS": "22",
    "DNP3_PORTS": "20000", "MODBUS_PORTS": "502", "FILE_DATA_PORTS": "[$HTTP_PORTS,110,143]",
    "FTP_PORTS": "21", "GENEVE_PORTS": "6081", "VXLAN_PORTS": "4789", "TEREDO_PORTS": "3544",
}  # fmt: skip
PROTOCOLS: Mapping[str, str] = {"dnp3": "20000", "modbus": "502", "enip": "44818"}
"""Protocols that Suricata knows unless it is told nothing of them, and their ports."""
SUPPORT: Mapping[str, str] = {
    "classification.config": "classification-file",
    "reference.config": "reference-config-file",
    "threshold.config": "threshold-file",
}
"""Files that sets of rules come with, and the settings that name them."""


def _rule_files(value: str | list[str]) -> str | list[str]:
    for path in [value] if isinstance(value, str) else value:
        if value not in ("none", "many") and not Path(path).exists():
            raise ValueError(
                f"there is no file {path!r}: write none, many, or the paths of files with rules, "
                "folders or archives"
            )
    return value


def _share(value: object) -> object:
    with as_value_error():
        return parse_share(value if isinstance(value, str) else shown(value))


class SuricataOptions(dpdk.DpdkOptions):
    """How it gets packets, and its rules: `none`, `many` (ours) or the path of a file.

    The other options are DPDK's and mean something in its mode only.
    """

    mode: Literal["af_packet", "dpdk"] = Field(
        default="af_packet",
        description="How it gets packets: by AF_PACKET sockets, or by DPDK, for which driver, "
        "huge_pages and memory are.",
        examples=["dpdk"],
    )
    rules: Annotated[str | list[str], AfterValidator(_rule_files)] = Field(
        default="none",
        description="Its rules: none; many, 5000 rules of ours that never match; or the path of a "
        "rule file, of a folder or an archive (tar) with such files, or a list of "
        "paths.",
        examples=["many"],
    )
    sha256: (
        Annotated[str, Matching(r"^[0-9a-f]{64}$", "a SHA-256 checksum: 64 digits of 0-9 and a-f")]
        | None
    ) = Field(
        default=None,
        description="The checksum that the file or archive in rules must have. By default it is "
        "only stored.",
        examples=["0" * 64],
    )
    rejected: Annotated[float, BeforeValidator(_share)] = Field(
        default=0.05,
        description="The share of its rules that Suricata may reject, with a warning; with more, "
        "the run fails.",
        examples=["1 %"],
    )
    vars: dict[str, str] = Field(
        default_factory=dict,
        description="Values of its groups of addresses and ports (names that end with _PORTS). By "
        "default Suricata's own, but HOME_NET and EXTERNAL_NET are any.",
        examples=[{"HOME_NET": "[198.18.0.0/15]", "EXTERNAL_NET": "!$HOME_NET"}],
    )
    manager: bool = Field(
        default=False,
        description="Whether the first of dut.cpus is for its managing threads alone, as in the "
        "papers.",
        examples=[True],
    )

    @property
    def paths(self) -> list[str]:
        """Where the user's rules are; none for our own."""
        rules = [self.rules] if isinstance(self.rules, str) else self.rules
        return [] if self.rules in ("none", "many") else rules

    @field_validator("rules")
    @classmethod
    def _rules_have_work(cls, rules: str | list[str], info: ValidationInfo) -> str | list[str]:
        """The traffic, where it is known, has payloads that our rules can look into."""
        if rules != "many" or not isinstance(info.context, Traffic):
            return rules
        traffic, smallest = info.context, min(info.context.sizes)
        headers = header_bytes(traffic.ip, traffic.vlan is not None)
        room = max(0, smallest - headers)
        if room < LONGEST:
            raise ValueError(
                f"many looks for {LONGEST} bytes in every payload, and packets of {smallest} B "
                f"have {room}: use a traffic.size of {headers + LONGEST} B or more"
            )
        return rules

    @model_validator(mode="after")
    def _checksum_is_of_one_file(self) -> SuricataOptions:
        if self.sha256 is not None and not (len(self.paths) == 1 and Path(self.paths[0]).is_file()):
            raise ValueError("sha256 is that of one file: name one in rules")
        return self

    @model_validator(mode="after")
    def _dpdk_is_asked_for(self) -> SuricataOptions:
        extra = sorted(self.model_fields_set & set(dpdk.DpdkOptions.model_fields))
        if extra and self.mode != "dpdk":
            raise ValueError(f"{extra[0]} means something with mode: dpdk only")
        return self


class Suricata(Plain):
    """``suricata``; each port has a worker thread on each of the DuT's CPUs."""

    name = "suricata"
    summary = "The intrusion prevention system Suricata 7, between the ports (layers 2 to 7)."
    documentation = (
        "Each port has a worker thread on each of the DuT's CPUs, and the kernel shares flows out "
        "to them. In the mode dpdk a port has one, and two CPUs are needed. By AF_XDP Suricata "
        "itself forwards nothing; DPDK does (`driver: af_xdp`). Needs `make "
        "forwarders`. Ready within 60 s: it compiles all rules first."
    )
    Options: type[BaseModel] = SuricataOptions
    needs: Sequence[Need] = (SURICATA,)

    def foresee(self, options: SuricataOptions, asked: Asked, findings: Findings) -> None:
        findings.ask(_require_cpus, options, asked.cpus)
        if options.paths:
            findings.ask(read_set, options.paths, options.sha256)
        if options.mode == "dpdk":
            dpdk.foresee(options, asked, findings)

    def start(self, dut: Dut, options: SuricataOptions, setting: Setting) -> Program:
        program = SURICATA.find(dut.host)
        _require_cpus(options, len(dut.cpus))
        files = {_RULES: "".join(f"{rule}\n" for rule in many_rules())}
        facts: dict[str, Any] = {"mode": options.mode, "rules": options.rules}
        if options.paths:
            files, facts["rules_sha256"] = read_set(options.paths, options.sha256)
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            content = common(options.mode, dut.cpus, work.path, manager=options.manager)
            facts |= {"rules_evaluated": EVALUATED} if options.rules == "many" else {}
            if options.mode == "dpdk":
                ports = dpdk.ports(dut, options, setting, stack)
                content |= dpdk_mode(ports, max(1500, setting.largest - 18))
                facts |= ports.facts
            else:
                content |= af_packet_mode(dut, len(dut.cpus) - options.manager)
            if options.rules != "none":
                content |= with_rules(work.path, list(files), options.vars)
                content |= all_protocols() if options.paths else {}
                for name, text in files.items():
                    work.put(name, text)
            configuration = work.put(_CONFIGURATION, render(content))
            command = [program, "-c", str(configuration), "-k", "none"]
            command.append("--dpdk" if options.mode == "dpdk" else "--af-packet")
            running = Program(
                work,
                "suricata",
                command,
                stack=stack,
                ready_seconds=READY_SECONDS,
                version=VERSION,
                facts=facts,
                counted=carried,
            )
        if options.rules != "none":
            with contextlib.ExitStack() as failed:
                failed.callback(running.close)
                _judge(running, work, options, dut.patience)
                failed.pop_all()
        return running


def _require_cpus(options: SuricataOptions, cpus: int) -> None:
    """Raises `InputError` when the DuT has too few CPUs for the mode."""
    if options.mode == "dpdk" and cpus < 2 + options.manager:
        raise InputError(
            "dut.cpus: suricata in its mode dpdk polls each port on a CPU of its own: give it "
            f"{'three with manager: true' if options.manager else 'two'}, or say "
            "dut.options.mode: af_packet"
        )
    if options.manager and cpus < 2:
        raise InputError(
            "dut.options.manager: the first of dut.cpus is for managing threads alone: give it "
            "another one that inspects packets"
        )


def _judge(running: Program, work: WorkFolder, options: SuricataOptions, patience: float) -> None:
    """Wait until the rules are loaded, and tell `running` how many were.

    Raises `InputError` when too many are rejected, or one of ours, and `MachineError` when there
    is no end of it.
    """
    deadline = time.monotonic() + LOAD_SECONDS * patience
    while (found := _count(lines := work.log())) is None:
        if running.process.ended:
            raise MachineError(running.failure())
        if time.monotonic() > deadline:
            raise MachineError(f"suricata did not load its rules within {LOAD_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    loaded, rejected = found
    running.tell({"rules_loaded": loaded, "rules_rejected": rejected})
    if not rejected:
        return
    what = " and ".join(options.paths) or "our rules"
    names = rejected_rules(lines)
    if not options.paths or rejected > options.rejected * (loaded + rejected):
        why = " / ".join(_told(lines)[:2])
        raise InputError(
            f"suricata does not take these rules: {rejected} of {loaded + rejected} are "
            f"rejected, more than dut.options.rejected allows: {why}"
        ).at(what)
    more = f" and {rejected - len(names)} more" if rejected > len(names) else ""
    running.tell(
        {"rules_rejected_named": names},
        Notice(
            "rules-rejected",
            f"Suricata rejected {rejected} of {loaded + rejected} rules of {what}: "
            f"{', '.join(names)}{more}; the reasons are in {work.log_name}",
        ),
    )


def _count(log: Sequence[str]) -> tuple[int, int] | None:
    """How many rules were loaded and how many rejected; None before that is known."""
    for line in log:
        if match := _LOADED.search(line):
            return int(match[1]), int(match[2])
        if line.startswith("W: detect: No rule files match") or "no rules were loaded" in line:
            return 0, 0
    return None


def carried(log: Sequence[str]) -> dict[str, Any]:
    """What came to each worker thread, and for what of it its ring had no room."""
    found = [match for line in log if (match := _CARRIED.search(line))]
    counts = {one[1]: {"packets": int(one[2]), "dropped": int(one[3])} for one in found}
    return {"workers": counts} if counts else {}


def rejected_rules(log: Sequence[str]) -> list[str]:
    """The first rules that were rejected, by the ids that they have, else by their beginning."""
    rules = (match[1] for line in log if (match := _REJECTED.match(line)))
    named = [f"sid {found[1]}" if (found := _ID.search(rule)) else rule[:40] for rule in rules]
    return named[:NAMED]


def _told(log: Sequence[str]) -> list[str]:
    """What Suricata says of its errors: first why, then which rule in which line of which file."""
    told = (match[1] for line in log if (match := _ERROR.search(line)))
    return [re.sub(r"/tmp/tt-[0-9a-f]{6}-[^/]*/(?:[0-9]{4}-)?", "", line) for line in told]


def common(
    mode: str, cpus: Sequence[int], folder: Path, *, manager: bool = False
) -> dict[str, Any]:
    """The part of the configuration that both modes have.

    With `manager` the first CPU is for managing threads alone.
    Nothing is logged, and what cannot be decoded passes: it forwards, and it matches rules.
    """
    # Threads that poll leave no CPU time to others, and Suricata gives managing threads no CPU
    # when the workers have all of them. Managing threads without a CPU of their own run where
    # this process may: off the DuT's CPUs where there are others.
    managing = [] if mode == "dpdk" and not manager else [cpus[0]]
    return {
        "default-log-dir": str(folder),
        "default-rule-path": str(folder),
        "rule-files": [],
        "stats": {"enabled": False},
        "outputs": [],
        "logging": {
            "default-log-level": "perf",  # which counts the rules, and the packets of each thread
            "outputs": [{"console": {"enabled": True, "format": "%D: %S: %M"}}],
        },
        "unix-command": {"enabled": False},
        "exception-policy": "ignore",
        "runmode": "workers",
        "threading": {
            "set-cpu-affinity": True,
            "cpu-affinity": [
                {"management-cpu-set": {"cpu": managing}},
                {"worker-cpu-set": {"cpu": list(cpus[manager:]), "mode": "exclusive"}},
            ],
        },
    }


def with_rules(folder: Path, files: Sequence[str], groups: Mapping[str, str]) -> dict[str, Any]:
    """The part of the configuration about rules: `files` in `folder`, and `groups` of the user."""
    known = {**ADDRESSES, **PORTS, **groups}
    ports = {name: value for name, value in known.items() if name.endswith("_PORTS")}
    addresses = {name: value for name, value in known.items() if name not in ports}
    named = {
        name: next((key for end, key in SUPPORT.items() if name.endswith(end)), None)
        for name in files
    }
    return {
        "vars": {"address-groups": addresses, "port-groups": ports},
        "rule-files": [name for name in files if name.endswith(".rules")],
        **{key: str(folder / name) for name, key in named.items() if key is not None},
    }


def all_protocols() -> dict[str, Any]:
    """The part of the configuration for rules about protocols that Suricata would not look for."""
    protocols = {
        name: {"enabled": True, "detection-ports": {"dp": port}} for name, port in PROTOCOLS.items()
    }
    return {"app-layer": {"protocols": protocols}}


def af_packet_mode(dut: Dut, threads: int) -> dict[str, Any]:
    """Both ports by AF_PACKET, each copied to the other, with so many threads for each.

    The kernel hands all packets of a flow, in both directions, to the same one of them.
    """
    ports = ((dut.ingress, dut.egress), (dut.egress, dut.ingress))
    return {
        "af-packet": [
            {
                "interface": port,
                "copy-iface": other,
                "copy-mode": "ips",
                "threads": threads,
                "cluster-id": number,
                "cluster-type": "cluster_flow",
                "defrag": False,
                "use-mmap": True,
                "tpacket-v3": False,  # it hands packets over in blocks, after up to 10 ms
                "ring-size": RING,
            }
            for number, (port, other) in enumerate(ports, 98)
        ]
    }


def dpdk_mode(ports: dpdk.Ports, mtu: int) -> dict[str, Any]:
    """Both ports by DPDK, each copied to the other, with one thread for each."""
    options: dict[str, Any] = {}
    for word in ports.memory:
        if word.startswith("-"):
            name = word.lstrip("-")
            options[name] = ""
        else:
            options[name] = word
    for option, value in ports.devices:
        options.setdefault(option.lstrip("-"), []).append(value)
    # The threads get the CPUs in this order: the ingress the second one, which is not where the
    # rest of the machine goes by habit.
    pairs = list(zip(ports.names, reversed(ports.names), strict=True))
    return {
        "dpdk": {
            "eal-params": options,
            "interfaces": [
                {
                    "interface": port,
                    "copy-iface": other,
                    "copy-mode": "ips",
                    "threads": 1,
                    "promisc": True,
                    "multicast": False,
                    "checksum-checks": False,
                    "checksum-checks-offload": False,
                    "mtu": mtu,
                    "mempool-size": BUFFERS,
                    "mempool-cache-size": 257,
                    "rx-descriptors": 1024,
                    "tx-descriptors": 1024,
                }
                for port, other in reversed(pairs)
            ],
        }
    }


def render(content: Mapping[str, Any]) -> str:
    """The configuration as Suricata reads it: YAML 1.1, which it insists on, and ``yes``/``no``."""
    text = yaml.safe_dump(_words(content), sort_keys=False, default_flow_style=False)
    return f"%YAML 1.1\n---\n{text}"


def many_rules() -> Iterator[str]:
    """Rules that look into the payload of every packet and never match, and one that drops.

    The multi-pattern matcher looks for the contents of most of them at once. `EVALUATED` of them
    have no content, so that Suricata evaluates them one by one for each packet.
    """
    for number in range(MANY):
        if number < EVALUATED:
            sought = f'pcre:"/tt-{number:04}[a-z]/"'
        else:
            sought = f'content:"tt-{number:05}"'
        yield (
            f'alert udp any any -> any any (msg:"never {number}"; {sought}; '
            f"sid:{FIRST_ID + number + 1}; rev:1;)"
        )
    yield (f'drop udp any any -> any {DROPPED_PORT} (msg:"discard"; sid:{FIRST_ID}; rev:1;)')


def _words(value: object) -> object:
    """Booleans as Suricata's words; everything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return {key: _words(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_words(inner) for inner in value]
    return value

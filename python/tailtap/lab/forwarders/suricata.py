"""`suricata`: the intrusion prevention system Suricata 7, inline between the two ports.

Packets come in at one port, are decoded, tracked as flows and matched against rules, and leave
through the other unless a rule drops them: by AF_PACKET sockets, or by DPDK.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tailtap.kinds.check import Check
from tailtap.kinds.findings import Findings
from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.program import Program, WorkFolder
from tailtap.lab.forwarders.setting import Asked, Need, Serves, Setting
from tailtap.lab.generators.model import Traffic
from tailtap.lab.generators.sizes import header_bytes
from tailtap.lab.platforms.dut import Dut
from tailtap.records.errors import InputError

READY_SECONDS = 60.0
"""How long Suricata may take until its first packet: it compiles all rules before."""
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
RING = 4096
"""Frames that a ring of AF_PACKET holds."""
BUFFERS = 16_383
"""Packet buffers of each port in DPDK mode; one less than a power of two fits best."""
_CONFIGURATION, _RULES = "suricata.yaml", "suricata.rules"
_ERROR = re.compile(r"^E: (.+)")


def _rule_file(value: str) -> str:
    if value not in ("none", "many") and not Path(value).is_file():
        raise ValueError(
            f"there is no file {value!r}: write none, many, or the path of a rule file"
        )
    return value


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
    rules: Annotated[str, AfterValidator(_rule_file)] = Field(
        default="none",
        description="Its rules: none; many, which are 5000 rules of ours that never match, 100 of "
        "them evaluated for every packet, and one that drops UDP port 9; or the path of a rule "
        "file.",
        examples=["many"],
    )

    @field_validator("rules")
    @classmethod
    def _rules_have_work(cls, rules: str, info: ValidationInfo) -> str:
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
    def _dpdk_is_asked_for(self) -> SuricataOptions:
        extra = sorted(self.model_fields_set & set(dpdk.DpdkOptions.model_fields))
        if extra and self.mode != "dpdk":
            raise ValueError(f"{extra[0]} means something with mode: dpdk only")
        return self


class Suricata:
    """``suricata``; its worker threads are pinned to the DuT's CPUs."""

    summary = "The intrusion prevention system Suricata 7, between the ports (layers 2 to 7)."
    documentation = (
        "Its worker threads are pinned to the DuT's CPUs. Needs `make forwarders`. Ready within "
        "60 s: it compiles all rules first. In the mode dpdk it needs two CPUs."
    )
    in_kernel = False
    routes = False
    serves: Serves = "pair"
    shares_cpus = False
    Options: type[BaseModel] = SuricataOptions
    needs: Sequence[Need] = (SURICATA,)

    def diagnose(self) -> Iterator[Check]:
        """Look for its program."""
        return find_programs("suricata", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out what its mode needs and this machine lacks."""
        chosen = cast("SuricataOptions", options)
        findings.ask(_require_cpus, chosen, asked.cpus)
        if chosen.mode == "dpdk":
            dpdk.foresee(chosen, asked, findings)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`, and `InputError` for a rule that it does not take."""
        chosen = cast("SuricataOptions", options)
        program = SURICATA.find(dut.host)
        _require_cpus(chosen, len(dut.cpus))
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            content = common(chosen.mode, dut.cpus, work.path)
            facts: dict[str, Any] = {"mode": chosen.mode, "rules": chosen.rules}
            facts |= {"rules_evaluated": EVALUATED} if chosen.rules == "many" else {}
            if chosen.mode == "dpdk":
                ports = dpdk.ports(dut, chosen, setting, stack)
                content |= dpdk_mode(ports, _mtu(setting))
                facts |= ports.facts
            else:
                content |= af_packet_mode(dut)
            configuration = work.put(_CONFIGURATION, render(content))
            rules = work.put(_RULES, "".join(f"{line}\n" for line in _rules(chosen.rules)))
            command = [program, "-c", str(configuration), "-S", str(rules), "-k", "none"]
            command.append("--init-errors-fatal")  # else it goes on without a rule
            if Path(chosen.rules).is_file():
                _test_rules(work, command, chosen.rules)
            command.append("--dpdk" if chosen.mode == "dpdk" else "--af-packet")
            return Program(
                work,
                "suricata",
                command,
                stack=stack,
                ready_seconds=READY_SECONDS,
                version=VERSION,
                facts=facts,
            )


def _require_cpus(options: SuricataOptions, cpus: int) -> None:
    """Raises `InputError` when the DuT has too few CPUs for the mode."""
    if options.mode == "dpdk" and cpus < 2:
        raise InputError(
            "dut.cpus: suricata in its mode dpdk polls each port on a CPU of its own: give it "
            "two, or say dut.options.mode: af_packet"
        )


def common(mode: str, cpus: Sequence[int], folder: Path) -> dict[str, Any]:
    """The part of the configuration that both modes have.

    Nothing is logged, and what cannot be decoded passes: it forwards, and it matches rules.
    """
    # Threads that poll leave no CPU time to others, and Suricata gives managing threads no CPU
    # when the workers have all of them. Managing threads without a CPU of their own run where
    # this process may: off the DuT's CPUs where there are others.
    managing = [] if mode == "dpdk" else [cpus[0]]
    return {
        "vars": {"address-groups": {"HOME_NET": "any", "EXTERNAL_NET": "any"}},
        "default-log-dir": str(folder),
        "default-rule-path": str(folder),
        "rule-files": [],
        "stats": {"enabled": False},
        "outputs": [],
        "logging": {
            "default-log-level": "notice",
            "outputs": [{"console": {"enabled": True, "format": "%D: %S: %M"}}],
        },
        "unix-command": {"enabled": False},
        "exception-policy": "ignore",
        "runmode": "workers",
        "threading": {
            "set-cpu-affinity": True,
            "cpu-affinity": [
                {"management-cpu-set": {"cpu": managing}},
                {"worker-cpu-set": {"cpu": list(cpus), "mode": "exclusive"}},
            ],
        },
    }


def af_packet_mode(dut: Dut) -> dict[str, Any]:
    """Both ports by AF_PACKET, each copied to the other, with one thread for each."""
    ports = ((dut.ingress, dut.egress), (dut.egress, dut.ingress))
    return {
        "af-packet": [
            {
                "interface": port,
                "copy-iface": other,
                "copy-mode": "ips",
                "threads": 1,
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


def _rules(name: str) -> Iterator[str]:
    if name == "many":
        yield from many_rules()
    elif name != "none":
        yield Path(name).read_text(encoding="utf-8", errors="surrogateescape")


def _test_rules(work: WorkFolder, command: Sequence[str], name: str) -> None:
    """Raises `InputError` with what Suricata says about the rules of the file `name`."""
    done = work.host.run([*command, "-T"], check=False)
    if done.status == 0:
        return
    lines = (done.stdout + done.stderr).splitlines()
    told = [match[1] for line in lines if (match := _ERROR.search(line.strip()))]
    told = [line.replace(str(work.path / _RULES), name) for line in told]
    # Suricata first says why, then names the rule and its line; the rest are counts.
    why = " / ".join(told[:2]) or f"status {done.status}"
    raise InputError(f"{name}: suricata does not take these rules: {why}")


def _mtu(setting: Setting) -> int:
    return max(1500, setting.largest - 18)


def _words(value: object) -> object:
    """Booleans as Suricata's words; everything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return {key: _words(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_words(inner) for inner in value]
    return value

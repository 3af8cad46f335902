"""`ovs`: Open vSwitch, its kernel datapath or the one in user space, with rules of OpenFlow.

Its two programs are started for each run, with a database, sockets and logs in the forwarder's own
folder: a switch that the machine has is not touched. The kernel's datapath is one of the DuT's
network namespace. The datapath in user space takes packets from AF_PACKET sockets, in the main
thread of ovs-vswitchd, which sleeps until packets come (`ovs_dpdk.py` has the one that polls).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from tailtap.base.errors import Check, Findings, InputError, MachineError
from tailtap.base.files import read_text
from tailtap.base.schema import Strict
from tailtap.base.units import list_cpus
from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.rules import RuleFile, read_rules
from tailtap.lab.forwarders.setting import Asked, Need, Plain, Program, Serves, Setting, WorkFolder
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.served import Served, by_kernel
from tailtap.remote import Host
from tailtap.remote.local import LocalHost

READY_SECONDS = 20.0
"""How long it may take until its first packet: it probes what its datapath can do."""
VERSION = re.compile(r"ovs-vswitchd(?:-dpdk)? \(Open vSwitch\) (\S+)")
REMEDY = "apt-get install openvswitch-switch, or run `make forwarders`"
SWITCH = Need("/usr/lib/openvswitch-switch/ovs-vswitchd", REMEDY)
"""Not the one on the path, which may be that with DPDK (update-alternatives(1))."""
TOOLS = tuple(
    Need(name, REMEDY)
    for name in ("ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
)
BRIDGE = "tt-ovs"
"""The switch, and the port of its own that it insists on."""
MOST_RULES = 100
"""Of how many rules the packets are told."""
MAIN = "ovs-vswitchd"
"""The name of its main thread, which moves packets of the datapath in user space."""
DATAPATHS = {"kernel": "system", "userspace": "netdev"}
"""What Open vSwitch calls its datapaths."""
THREADS = ("other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1")
"""Else there are as many as CPUs."""
RULES: Any = Field(
    default=None,
    description="A file with rules of OpenFlow, as ovs-ofctl(8) adds them. Port 1 is where "
    "packets come in, port 2 where they leave. By default all that comes in at one port leaves by "
    "the other.",
    examples=["firewall.flows"],
)

# The database ends with the switch, and both end with this shell, whatever becomes of it. The
# switch is who forwards: its process is the one that is counted. What no rule is for is dropped
# (fail-mode=secure), so that no packet passes before the rules are there. The port of its own is a
# tap device in user space, which needs a file that containers and small guests lack.
_RUN = """folder=$1 switch=$2 cpus=$3 seconds=$4; shift 4
export OVS_RUNDIR="$folder" OVS_LOGDIR="$folder" OVS_DBDIR="$folder" OVS_SYSCONFDIR="$folder"
db="unix:$folder/db.sock" control="$folder/vs.ctl" bound='setpriv --pdeathsig KILL'
[ -e /dev/net/tun ] || { modprobe -q tun; mkdir -p /dev/net; mknod /dev/net/tun c 10 200; }
ovsdb-tool create "$folder/conf.db" /usr/share/openvswitch/vswitch.ovsschema || exit 1
$bound ovsdb-server "$folder/conf.db" --remote="p$db" --unixctl="$folder/db.ctl" \\
    -vconsole:warn & database=$!
trap 'kill $database; wait $database' EXIT
$bound ${cpus:+taskset --cpu-list "$cpus"} "$switch" "$db" --unixctl="$control" \\
    -vconsole:info & switch=$!
echo $switch > "$folder/pid"
trap 'ovs-appctl -t "$control" exit --cleanup; wait $switch; exit $?' INT TERM
ovs-vsctl --retry --timeout=$seconds --db="$db" "$@" & setter=$!
while [ -e /proc/$setter/exe ] && [ -e /proc/$switch/exe ]; do sleep 0.05; done
[ -e /proc/$switch/exe ] || kill $setter 2> /dev/null
wait $setter &&
    wrong=$(ovs-vsctl --db="$db" --bare --columns=name,error find interface 'error!=[]') &&
    [ -z "$wrong" ] && ovs-ofctl add-flows "unix:$folder/BRIDGE.mgmt" "$folder/rules" ||
    { why=$(sed -n 's/.*|\\(WARN\\|ERR\\)|//p' "$folder/log" | head -n 3 | paste -s -d ';')
      kill $switch; wait $switch; echo "Error: the switch was not set up: $wrong $why"; exit 1; }
wait $switch""".replace("BRIDGE", BRIDGE)
_TELL = """ovs-appctl -t "$1/vs.ctl" revalidator/wait
ovs-ofctl dump-flows "unix:$1/BRIDGE.mgmt"
ovs-appctl -t "$1/vs.ctl" dpif/show""".replace("BRIDGE", BRIDGE)
_RULE = re.compile(r"n_packets=([0-9]+), .*age=[0-9]+, (.*actions=.*)$", re.M)
_DATAPATH = re.compile(r"^\S+: hit:([0-9]+) missed:([0-9]+)", re.M)
# A look loads no module.
_HAS_DATAPATH = "ovs-dpctl dump-dps 2> /dev/null || exec modprobe -qn openvswitch"
_LOAD_DATAPATH = ("modprobe", "-q", "openvswitch")


class OvsOptions(Strict):
    """Its rules, and which of its datapaths forwards."""

    datapath: Literal["kernel", "userspace"] | None = Field(
        default=None,
        description="Which datapath forwards: that of the kernel (module openvswitch), the "
        "default where there is one, or that in user space, which takes packets from "
        "AF_PACKET sockets.",
        examples=["userspace"],
    )
    rules: RuleFile | None = RULES


class Switch(Program):
    """ovs-vswitchd while it runs, with its database."""

    def __init__(
        self,
        work: WorkFolder,
        name: str,
        command: Sequence[str],
        *,
        stack: contextlib.ExitStack,
        facts: Mapping[str, Any],
        threads: str,
        kernel: Served | None = None,
    ) -> None:
        """Start `command`; the threads whose names begin with `threads` serve, or the `kernel`."""
        super().__init__(
            work, name, command, stack=stack, ready_seconds=READY_SECONDS, version=VERSION,
            facts=facts, polls=threads != MAIN,
        )  # fmt: skip
        self._threads, self._kernel = threads, kernel

    def served(self) -> Served:
        if self._kernel is not None:
            return self._kernel
        found = super().served()
        names = {pid: read_text(Path(f"/proc/{pid}/comm")) or "" for pid in found.pids}
        return Served(
            found.by, [pid for pid, name in names.items() if name.startswith(self._threads)]
        )

    def stop(self) -> dict[str, Any]:
        if not self.process.ended:
            asked = ["sh", "-c", _TELL, "tell", str(self._work.path)]
            self.tell(counted(self._work.host.run(asked, check=False).stdout))
        return super().stop()


def counted(told: str) -> dict[str, Any]:
    """The packets of each rule, and those that the datapath knew or had to ask for.

    `told` is what ovs-ofctl and ovs-appctl print. What the datapath misses takes the long way,
    through ovs-vswitchd's tables of rules.
    """
    rules = [{"rule": match[2], "packets": int(match[1])} for match in _RULE.finditer(told)]
    found = _DATAPATH.search(told)
    datapath = {"hit": int(found[1]), "missed": int(found[2])} if found else {}
    return {"rule_packets": rules[:MOST_RULES], "lookups": datapath}


def bridge(datapath: str, ports: Mapping[str, Sequence[str]]) -> list[str]:
    """The words of ovs-vsctl(8) that make the switch; `ports` has the settings of each port."""
    words = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, f"datapath_type={datapath}"]
    words += ["fail-mode=secure", "--", "set", "open_vswitch", ".", *THREADS]
    for number, (name, settings) in enumerate(ports.items(), 1):
        words += ["--", "add-port", BRIDGE, name]
        words += ["--", "set", "interface", name, f"ofport_request={number}", *settings]
    return words


def openflow(dut: Dut, rules: str | None) -> str:
    """The rules of the file `rules`, or those of the DuT's ways. Raises `InputError`."""
    if rules is not None:
        return read_rules(rules)
    number = {port: place for place, port in enumerate(dut.ports, 1)}
    ways = ((number[entered], number[left]) for entered, left in dut.ways)
    return "".join(f"in_port={entered},actions=output:{left}\n" for entered, left in ways)


def command(
    work: WorkFolder, program: str, dut: Dut, cpus: Sequence[int], words: Sequence[str]
) -> list[str]:
    """The command that runs the switch `program` and its database in the folder of `work`.

    Without `cpus` it is left where it may run.
    """
    seconds = str(round(READY_SECONDS * dut.patience))
    return ["sh", "-c", _RUN, "ovs", str(work.path), program, list_cpus(cpus), seconds, *words]


def require_rules(host: Host, rules: str | None) -> None:
    """Raises `InputError` for rules of OpenFlow that are none."""
    if rules is None:
        return
    done = host.run(["ovs-ofctl", "parse-flows", "-"], stdin=read_rules(rules), check=False)
    if done.status != 0:
        said = " ".join(done.stderr.split()).replace("-:", f"{rules}:")
        raise InputError(f"Open vSwitch does not take these rules: {said}").at(rules)


class Ovs(Plain):
    """``ovs-vswitchd`` and its database, in a folder of their own."""

    name = "ovs"
    summary = "Open vSwitch moves packets by rules of OpenFlow (layers 2 to 4)."
    documentation = (
        "The datapath of the kernel where it has one, else that in user space. Database, sockets "
        "and log are in a folder of the run's; a switch of the machine is not touched. Needs `make "
        "forwarders`, or the Debian package openvswitch-switch. Ready within 20 s."
    )
    serves: Serves = "ports"
    shares_cpus = True
    Options: type[BaseModel] = OvsOptions
    needs: Sequence[Need] = (SWITCH, *TOOLS)

    def diagnose(self) -> Iterator[Check]:
        for check in super().diagnose():
            kernel = check.state == "ok" and has_kernel_datapath(LocalHost())
            which = "the kernel's datapath" if kernel else "the datapath in user space only"
            yield replace(check, found=which) if check.state == "ok" else check

    def foresee(self, options: OvsOptions, asked: Asked, findings: Findings) -> None:
        findings.ask(require_rules, LocalHost(), options.rules)
        if not asked.own_kernel:
            findings.ask(_datapath, LocalHost(), options)

    def start(self, dut: Dut, options: OvsOptions, setting: Setting) -> Switch:
        program, *_ = (need.find(dut.host) for need in self.needs)
        require_rules(dut.host, options.rules)
        datapath = _datapath(dut.host, options)
        if datapath == "kernel":
            dut.host.run(_LOAD_DATAPATH, check=False)  # where it is built in, there is no module
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            work.put("rules", openflow(dut, options.rules))
            words = bridge(DATAPATHS[datapath], dict.fromkeys(dut.ports, ()))
            return Switch(
                work,
                "ovs",
                command(work, program, dut, dut.cpus, words),
                stack=stack,
                facts={"datapath": datapath},
                threads=MAIN,
                kernel=by_kernel(setting.lab, dut) if datapath == "kernel" else None,
            )


def has_kernel_datapath(host: Host) -> bool:
    """Whether the kernel of `host` has the datapath of Open vSwitch, or a module with it."""
    return host.run(["sh", "-c", _HAS_DATAPATH], check=False).status == 0


def _datapath(host: Host, options: OvsOptions) -> str:
    """Which datapath forwards. Raises `MachineError` when the one that was asked for is missing."""
    if options.datapath == "userspace":
        return "userspace"
    if has_kernel_datapath(host):
        return "kernel"
    if options.datapath == "kernel":
        raise MachineError(
            f"the kernel of {host.name} has no datapath of Open vSwitch (CONFIG_OPENVSWITCH): say "
            "dut.options.datapath: userspace"
        )
    return "userspace"


POLLING_SWITCH = Need(
    "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
    "apt-get install openvswitch-switch-dpdk, or run `make forwarders`",
)
POLLS = "pmd-"
"""How the names of its threads begin that poll ports."""


class OvsDpdkOptions(dpdk.DpdkOptions):
    """DPDK's options, and its rules."""

    rules: RuleFile | None = RULES


class OvsDpdk(Plain):
    """``ovs-vswitchd-dpdk`` and its database, in a folder of their own."""

    name = "ovs-dpdk"
    summary = "Open vSwitch with DPDK moves packets by rules of OpenFlow (layers 2 to 4), polling."
    documentation = (
        "A thread polls on each of the DuT's CPUs, up to two. Needs `make forwarders`, or the "
        "Debian package openvswitch-switch-dpdk. Ready within 20 s."
    )
    Options: type[BaseModel] = OvsDpdkOptions
    needs: Sequence[Need] = (POLLING_SWITCH, *TOOLS)

    def foresee(self, options: OvsDpdkOptions, asked: Asked, findings: Findings) -> None:
        findings.ask(require_rules, LocalHost(), options.rules)
        dpdk.foresee(options, asked, findings)

    def start(self, dut: Dut, options: OvsDpdkOptions, setting: Setting) -> Switch:
        program, *_ = (need.find(dut.host) for need in self.needs)
        require_rules(dut.host, options.rules)
        cpus = dut.cpus[:2]
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            ports = dpdk.ports(dut, options, setting, stack)
            work.put("rules", openflow(dut, options.rules))
            devices = {
                port: ("type=dpdk", f'options:dpdk-devargs="{device}"')
                for port, (_, device) in zip((dut.ingress, dut.egress), ports.devices, strict=True)
            }
            # Open vSwitch adds an option for huge pages in memory unless it finds this one.
            memory = [*ports.memory, *([] if ports.facts["huge_pages"] else ["--legacy-mem"])]
            words = [
                *bridge(DATAPATHS["userspace"], devices),
                *("--", "set", "open_vswitch", ".", "other_config:dpdk-init=true"),
                f'other_config:dpdk-extra="{" ".join(memory)}"',
                f'other_config:pmd-cpu-mask="{sum(1 << cpu for cpu in cpus):#x}"',
            ]
            # Its other threads run wherever this process may: those that poll never let go of a
            # CPU.
            return Switch(
                work,
                "ovs-dpdk",
                command(work, program, dut, (), words),
                stack=stack,
                facts=ports.facts,
                threads=POLLS,
            )

"""A server as the DuT, and a DuT with files of its own, from an image or a folder: what else an
experiment must say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtap.base.document import KeyPath, Misfit
from tailtap.experiment.over import VETH
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.platforms.contained import ContainedOptions
from tailtap.lab.platforms.vm import VmOptions

if TYPE_CHECKING:
    from tailtap.experiment.dut import Dut
    from tailtap.experiment.model import Experiment

TRANSACTIONS = "transactions"


def check_server(experiment: Experiment) -> None:
    """Raises `Misfit` unless clients ask a DuT that answers, and only such a one."""
    dut, traffic, asked = experiment.dut, experiment.traffic, experiment.evaluation
    forwarder: KeyPath = ("dut", "forwarder")
    if not experiment.answers:
        for member in dut.members:
            if FORWARDERS[member.dut.forwarder].serves == "clients":
                raise Misfit(("dut", "nodes"), f"{member.dut.forwarder} is no node of a line: it "
                             "answers, and hands nothing on: measure it alone")  # fmt: skip
        if asked.match == TRANSACTIONS:
            raise Misfit(("evaluation", "match"), "the DuT hands packets on and answers none: "
                         "take dut.forwarder: server, or leave it out", [forwarder])  # fmt: skip
        if asked.transaction is not None:
            raise Misfit(("evaluation", "transaction"), "this is for evaluation.match: "
                         "transactions: leave it out", [("evaluation", "match")])  # fmt: skip
        return
    name = dut.forwarder
    if not experiment.traits.has_dut:
        raise Misfit(forwarder, f"platform {dut.platform} has no DuT that could answer: take "
                     "another dut.platform", [("dut", "platform")])  # fmt: skip
    if dut.line != 1 or dut.is_network:
        key = "line" if dut.line != 1 else "links" if dut.links else "flows"
        raise Misfit(
            ("dut", key), f"{name} has one port and is no node of a line: leave it out", [forwarder]
        )
    if dut.given("ports") is not None or dut.over != VETH:
        key = "over" if dut.over != VETH else "ports"
        raise Misfit(
            ("dut", key), f"the port of {name} is on the lab's links: leave it out", [forwarder]
        )
    if traffic.external is None:
        raise Misfit(("traffic", "generator"), f"tailtap's own packets ask {name} nothing: take "
                     "external, and its command in traffic.external", [forwarder])  # fmt: skip
    if traffic.bidirectional:
        raise Misfit(("traffic", "bidirectional"), f"{name} answers, and asks nobody: leave it out",
                     [forwarder])  # fmt: skip
    if asked.match != TRANSACTIONS:
        raise Misfit(
            ("evaluation", "match"), f"no packet passes {name}: take transactions", [forwarder]
        )
    if experiment.snap is None:
        raise Misfit(("tap", "format"), "stamps do not tell requests from answers: leave it out",
                     [("evaluation", "match")])  # fmt: skip
    if experiment.tap.kind != "inline":
        raise Misfit(
            ("tap", "kind"), "only inline taps stamp both ways of a link: leave it out", [forwarder]
        )


COMMANDS = ("external", "server")
"""The forwarders that are a command of whoever measures."""


def has_own_files(dut: Dut) -> bool:
    """Whether a node has none of this machine's files, and so none of its programs."""
    settings = dut.settings
    if isinstance(settings, VmOptions):
        return settings.image is not None
    return isinstance(settings, ContainedOptions) and settings.has_own_files


def check_own_files(experiment: Experiment) -> None:
    """Raises `Misfit` for a forwarder that needs what a node does not have, or has no command."""
    for member in experiment.dut.members if experiment.traits.has_dut else ():
        dut, own = member.dut, has_own_files(member.dut)
        if dut.forwarder in COMMANDS:
            names_command = isinstance(dut.settings, ContainedOptions) and dut.given("image")
            _check_command(dut, own=own, image=own and bool(names_command))
        elif own and not FORWARDERS[dut.forwarder].in_kernel:
            raise Misfit(
                ("dut", "forwarder"),
                f"{dut.forwarder} is a program of this machine, which the image does not have: "
                f"take {' or '.join(COMMANDS)}, or a forwarder in the kernel",
                [("dut", "image"), ("dut", "root")],
            )


def _check_command(dut: Dut, *, own: bool, image: bool) -> None:
    command = dut.options.get("command")
    at: KeyPath = ("dut", "options")
    if command is None and not image:
        raise Misfit(
            at, "command is missing: only an image of a container (dut.image) has one of its own"
        )
    if "arguments" in dut.options and (command is not None or not image):
        raise Misfit(at, "arguments are for the command of an image: write all of it as command")
    if own and "{folder}" in str(command or dut.options.get("arguments")):
        raise Misfit(at, "{folder} is a folder of this machine, which the image does not see: name "
                     "one of the image's")  # fmt: skip

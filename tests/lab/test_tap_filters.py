"""What a killed tap leaves before Linux 6.6, made here by tc(8), is found and removed. As root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from namespaces import Namespace

from tailtap.host.net.tap_filters import MADE, TapFilter, left_behind

PROGRAM = """
#include <linux/bpf.h>
__attribute__((section("tc"), used)) int {name}(struct __sk_buff *skb) {{ return -1; }}
char LICENSE[] __attribute__((section("license"), used)) = "GPL";
"""
HOLD = """
import ctypes, sys
attributes = ctypes.create_string_buffer(int(sys.argv[1]).to_bytes(4, sys.byteorder), 128)
held = ctypes.CDLL(None).syscall(int(sys.argv[2]), 13, attributes, 128)
print(held, flush=True)
sys.stdin.read()
"""
"""Holds the program of a number: BPF_PROG_GET_FD_BY_ID of bpf(2)."""
BPF = {"x86_64": 321, "aarch64": 280}
TAP = int.from_bytes(b"ta")


def built(folder: Path, name: str) -> Path:
    """A program of this name, which lets all packets pass."""
    source, made = folder / f"{name}.c", folder / f"{name}.o"
    source.write_text(PROGRAM.format(name=name))
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout
    include = f"/usr/include/{machine.strip()}-linux-gnu"
    command = ["clang", "-target", "bpf", "-O2", "-g", "-idirafter", include, "-c", str(source)]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made


def own(namespace: Namespace) -> list[TapFilter]:
    """Those that were left in a namespace."""
    return [one for one in left_behind() if one.namespace.endswith(f"/{namespace.name}")]


def test_what_a_killed_tap_left_is_found_and_removed(namespace: Namespace, tmp_path: Path) -> None:
    namespace.veth("in", "out")
    tap, other = (built(tmp_path, name) for name in ("tap", "stranger"))
    filters = (("in", "ingress", TAP | MADE, tap), ("out", "ingress", TAP, tap),
               ("out", "egress", TAP, other))  # fmt: skip
    for port in ("in", "out"):
        namespace.run("tc", "qdisc", "add", "dev", port, "clsact")
    for port, hook, handle, program in filters:
        where = ["dev", port, hook, "protocol", "all", "pref", "1", "handle", f"{handle:#x}"]
        namespace.run("tc", "filter", "add", *where, "bpf", "da", "obj", str(program), "sec", "tc")
    found = own(namespace)
    # A stranger's program is none of ours, whatever its handle.
    assert [(one.interface, one.hook) for one in found] == [("out", "ingress"), ("in", "ingress")]
    for one in found:
        assert one.read()
        one.undo(old=False)
        assert not one.read()
        one.undo(old=False)  # a second time it does nothing
    assert own(namespace) == []
    shown = namespace.run("tc", "qdisc", "show").stdout
    assert "clsact" in shown and "dev out" in shown
    [qdisc] = [line for line in shown.splitlines() if "clsact" in line]
    assert "dev out" in qdisc  # the other one was made by its tap
    assert "stranger" in namespace.run("tc", "filter", "show", "dev", "out", "egress").stdout


def test_what_a_running_tap_has_stays(namespace: Namespace, tmp_path: Path) -> None:
    namespace.veth("in", "out")
    namespace.run("tc", "qdisc", "add", "dev", "in", "clsact")
    where = ["dev", "in", "ingress", "protocol", "all", "pref", "1", "handle", f"{TAP:#x}"]
    program = str(built(tmp_path, "tap"))
    namespace.run("tc", "filter", "add", *where, "bpf", "da", "obj", program, "sec", "tc")
    shown = namespace.run("tc", "-json", "filter", "show", "dev", "in", "ingress").stdout
    number = shown.split('"prog":{"id":')[1].split(",")[0]
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, number, str(BPF[machine.strip()])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None and int(holder.stdout.readline()) > 0
        assert own(namespace) == []
    finally:
        holder.communicate("")
    assert len(own(namespace)) == 1

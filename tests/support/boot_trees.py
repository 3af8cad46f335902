"""Boot loaders and a kernel that boots, as files of a scratch machine.

Sources: GRUB's layout is that of Debian's grub2-common (grub-mkconfig reads /etc/default/grub, then
/etc/default/grub.d/*.cfg), systemd-boot's that of kernel-install(8) and the Boot Loader
Specification; what a kernel does with its line is Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
RELEASE = "6.12.48-amd64"
MACHINE = "5c1f8d7e3b2a4f60"
ENTRY = f"{MACHINE}-{RELEASE}.conf"
ENTRY_TEXT = f"""# made by kernel-install
title      Debian GNU/Linux
version    {RELEASE}
sort-key   debian
options    root=UUID=1 ro quiet
linux      /{MACHINE}/{RELEASE}/linux
initrd     /{MACHINE}/{RELEASE}/initrd.img
"""
MKCONFIG = """#!/bin/sh
. /etc/default/grub
for one in /etc/default/grub.d/*.cfg; do . "$one"; done
"""
KNOWN = frozenset((
    "audit", "idle", "iommu", "irqaffinity", "isolcpus", "mce", "nmi_watchdog", "nohz_full",
    "nosoftlockup", "numa_balancing", "quiet", "rcu_nocb_poll", "rcu_nocbs", "ro", "root",
    "skew_tick", "transparent_hugepage", "tsc",
))  # fmt: skip
"""Parameters that the kernel has, of those that the tests write."""


def write(root: Path, path: str, text: str) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def with_grub(root: Path, settings: str = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n') -> Path:
    """The machine with Debian's GRUB."""
    write(root, "/etc/default/grub", settings)
    write(root, "/usr/sbin/grub-mkconfig", MKCONFIG)
    write(root, "/usr/sbin/update-grub", "#!/bin/sh\nexec grub-mkconfig -o /boot/grub/grub.cfg\n")
    return root


def grub_line(root: Path) -> list[str]:
    """The words that grub-mkconfig gives to a normal entry, by a shell that reads the files."""
    files = [root / "etc/default/grub", *sorted(root.glob("etc/default/grub.d/*.cfg"))]
    script = "".join(f". {file}\n" for file in files)
    script += 'echo "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
    return subprocess.check_output(
        ["sh", "-euc", f"GRUB_CMDLINE_LINUX=\n{script}"], text=True
    ).split()


def variable(root: Path, name: str, value: str) -> None:
    """A variable of the firmware."""
    path = write(root, f"/sys/firmware/efi/efivars/{name}-{VENDOR}", "")
    path.write_bytes(b"\6\0\0\0" + f"{value}\0".encode("utf-16-le"))


def with_systemd_boot(root: Path, place: str = "/boot") -> Path:
    """The machine with systemd-boot and one entry."""
    write(root, f"{place}/loader/loader.conf", "timeout 3\ndefault debian-*\n")
    write(root, f"{place}/loader/entries/{ENTRY}", ENTRY_TEXT)
    variable(root, "LoaderInfo", "systemd-boot 257.8-1")
    variable(root, "LoaderEntrySelected", ENTRY)
    write(root, "/proc/sys/kernel/osrelease", f"{RELEASE}\n")
    return root


def boot(root: Path, line: str) -> None:
    """Do with `line` what a kernel does that has all options; what it does not know, it says."""
    write(root, "/proc/cmdline", f"BOOT_IMAGE=/vmlinuz {line}\n")
    given: dict[str, str] = {}
    log = [f"6,1,1,-;Linux version {RELEASE}"]
    for word in line.split():
        name, _, value = word.partition("=")
        given[name.replace("-", "_")] = value
    unknown = " ".join(name for name in given if name not in KNOWN and "." not in name)
    if unknown:
        log.append(f'5,2,1,-;Unknown kernel command line parameters "{unknown}", will be passed')
    write(root, "/proc/2/comm", "kthreadd\n")
    if given.get("rcu_nocbs"):
        log.append(f"6,3,1,-;rcu: \\x09Offload RCU callbacks from CPUs: {given['rcu_nocbs']}.")
        for cpu in range(4):  # kernels that can change it later have a thread for each
            write(root, f"/proc/{20 + cpu}/comm", f"rcuop/{cpu}\n")
    write(root, "/dev/kmsg", "\n".join([*log, ""]))
    interrupts = sum(1 << cpu for cpu in listed(given.get("irqaffinity", "0-3")))
    huge = given.get("transparent_hugepage", "madvise")
    effects = {
        "sys/devices/system/cpu/isolated": re.sub(r"[a-z_]+,", "", given.get("isolcpus", "")),
        "sys/devices/system/cpu/nohz_full": given.get("nohz_full", "(null)"),
        "proc/irq/default_smp_affinity": f"{interrupts:x}",
        "proc/sys/kernel/soft_watchdog": "0" if "nosoftlockup" in given else "1",
        "proc/sys/kernel/nmi_watchdog": given.get("nmi_watchdog", "1"),
        "proc/sys/kernel/numa_balancing": "0" if given.get("numa_balancing") == "disable" else "1",
        "sys/kernel/rcu_normal": given.get("rcupdate.rcu_normal_after_boot", "0"),
        "sys/kernel/mm/transparent_hugepage/enabled": "always madvise never".replace(
            huge, f"[{huge}]"
        ),
    }
    for path, text in effects.items():
        write(root, path, f"{text}\n")


def listed(text: str) -> list[int]:
    """The CPUs of ``1-3,5``."""
    pairs = (part.split("-") for part in text.split(",") if part)
    return [
        cpu for first, *last in pairs for cpu in range(int(first), int((last or [first])[0]) + 1)
    ]

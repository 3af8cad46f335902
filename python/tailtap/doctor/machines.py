"""Whether DuTs can be virtual machines here, and whether KVM runs them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from tailtap.doctor.check import Check
from tailtap.errors import MachineError
from tailtap.host.local import PACKAGES
from tailtap.host.privileges import missing_capabilities
from tailtap.platform.vm import PROGRAMS, kernels
from tailtap.platform.vm.kvm import accelerator

AREA = "virtual machines"


def check_machines() -> Iterator[Check]:
    """The programs, then a kernel that is booted under KVM, if one has been unpacked."""
    missing = [PACKAGES.get(name, name) for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        remedy = f"apt-get install --no-install-recommends {' '.join(missing)}"
        yield Check(AREA, "QEMU and libvirt", "missing", "not complete", remedy)
        return
    yield Check(AREA, "QEMU and libvirt", "ok", "every program is there")
    package = kernels.PACKAGES[kernels.DEFAULT]
    if missing_capabilities():
        yield Check(AREA, "KVM", "untested", "only root can try it", "run it with sudo")
        return
    if not kernels.is_unpacked(package):
        remedy = "the first run with dut.platform: vm downloads one; look here again after it"
        yield Check(AREA, "KVM", "untested", f"{package} is not unpacked yet", remedy)
        return
    try:
        found = accelerator(kernels.kernel(kernels.DEFAULT))
    except MachineError as error:
        yield Check(AREA, "KVM", "missing", str(error), "a kernel with KVM and a CPU that has it")
        return
    if found.emulated:
        remedy = "a machine whose guests boot: here they run in software, with no sense of time"
        yield Check(AREA, "KVM", "poor", found.reason, remedy)
    else:
        yield Check(AREA, "KVM", "ok", found.reason)

"""Every kind of thing that tailtap changes on a machine."""

from __future__ import annotations

from collections.abc import Mapping

from tailtap.errors import MachineError
from tailtap.machine.card_interrupts import CardInterrupts
from tailtap.machine.card_settings import CardQueues, CardSetting
from tailtap.machine.cards import Card
from tailtap.machine.domains import DomainFolder
from tailtap.machine.folders import Folder
from tailtap.machine.huge_pages import Reservation
from tailtap.machine.journal import Entry
from tailtap.machine.kernel_values import KernelValue
from tailtap.machine.loaders.boot_file import BootFile
from tailtap.machine.lxc import Container
from tailtap.machine.namespaces import Junction, Link, Namespace, TapDevice
from tailtap.machine.oci import Bundle
from tailtap.machine.podman import Pod
from tailtap.machine.port_threads import PortThreads
from tailtap.machine.resctrl.group import ResourceGroup
from tailtap.machine.resctrl.mount import ResctrlMount
from tailtap.machine.resource import Resource
from tailtap.machine.systemd import SliceCpus, StoppedTimers
from tailtap.machine.threads import ThreadAffinity, ThreadPriority
from tailtap.machine.vfio import VfioCard
from tailtap.machine.virtual_functions import VirtualFunction, VirtualFunctions
from tailtap.machine.wakeup import WakeUp
from tailtap.registry import Registry


def _built_in() -> Mapping[str, type[Resource]]:
    return {
        kind.kind: kind
        for kind in (
            DomainFolder,
            Container,
            Bundle,
            Pod,
            CardInterrupts,
            PortThreads,
            CardQueues,
            Card,
            CardSetting,
            VirtualFunction,
            VirtualFunctions,
            KernelValue,
            Junction,
            TapDevice,
            Namespace,
            Link,
            Folder,
            Reservation,
            ThreadAffinity,
            ThreadPriority,
            StoppedTimers,
            SliceCpus,
            WakeUp,
            BootFile,
            VfioCard,
            ResourceGroup,
            ResctrlMount,
        )
    }


KINDS: Registry[type[Resource]] = Registry(
    "resource", "tailtap.resources", Resource, _built_in, classes=True
)
"""Every kind by its name in the journal. What no journal knows is removed in this order."""


def resource_of(entry: Entry) -> Resource | None:
    """The resource of an entry; None for one that this version of tailtap does not know."""
    try:
        kind = KINDS.get(entry.kind)
        return None if kind is None else kind.parse(entry.resource)
    except (TypeError, MachineError):  # it had other fields, or its package does not work
        return None

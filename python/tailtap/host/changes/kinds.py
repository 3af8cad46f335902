"""Every kind of thing that tailtap changes on a machine."""

from __future__ import annotations

from collections.abc import Mapping

from tailtap.base.errors import MachineError
from tailtap.base.registry import Registry
from tailtap.host.changes.huge_pages import Reservation
from tailtap.host.changes.journal import Entry
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.processes import Folder
from tailtap.host.changes.resource import Resource
from tailtap.host.changes.systemd import SliceCpus, StoppedTimers
from tailtap.host.changes.wakeup import WakeUp
from tailtap.host.containers.domains import DomainFolder
from tailtap.host.containers.lxc import Container
from tailtap.host.containers.oci import Bundle
from tailtap.host.containers.podman import Pod
from tailtap.host.cpu.resctrl import ResctrlMount, ResourceGroup
from tailtap.host.cpu.threads import ThreadAffinity, ThreadPriority
from tailtap.host.loaders import BootFile
from tailtap.host.net.card_interrupts import CardInterrupts
from tailtap.host.net.card_settings import CardQueues, CardSetting
from tailtap.host.net.cards import Card
from tailtap.host.net.namespaces import Junction, Link, Namespace, Reached, TapDevice
from tailtap.host.net.port_threads import PortThreads
from tailtap.host.net.silent_link import SilentLink
from tailtap.host.net.tap_filters import TapFilter
from tailtap.host.net.vfio import VfioCard
from tailtap.host.net.virtual_functions import VirtualFunction, VirtualFunctions


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
            SilentLink,
            CardSetting,
            VirtualFunction,
            VirtualFunctions,
            KernelValue,
            Junction,
            Reached,
            TapDevice,
            TapFilter,
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
        if kind is None:
            return None
        kind.check(entry.old, entry.applied)
        return kind.parse(entry.resource)
    except (TypeError, MachineError):  # it had other fields or states, or its package does not work
        return None

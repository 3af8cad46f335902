"""The key `boot` of a host in a testbed file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from tailtap.base.schema import Strict, Time, as_value_error
from tailtap.lab.platforms.boot import check_boot


class BootOptions(Strict):
    """How a host is booted. The way declares further keys."""

    via: str = Field(
        description="The way: kexec, grub or ipxe, which docs/reference/kinds.md describes.",
        examples=["kexec"],
    )
    images: dict[str, str] = Field(
        default_factory=dict,
        description="Live images that stand for the names of kernels (dut.kernel): folders beside "
        "the testbed file, which `tailtap testbed image` makes. Without any, the host boots the "
        "kernels in its own /boot.",
        examples=[{"vanilla": "live/vanilla", "rt": "live/rt"}],
    )
    append: str | None = Field(
        default=None,
        description="The parameters that each boot has, before those of dut.boot. By default the "
        "ones that the host was booted with, or none with a live image.",
        examples=["console=ttyS0 ip=eno1:dhcp"],
    )
    timeout: Time = Field(
        default=300_000_000_000,
        description="How long the host may take until ssh reaches it again. Then it is switched "
        "off and on once, if `power` says how, and the run fails.",
        examples=["10 min"],
    )
    _own: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def own(self) -> Mapping[str, Any]:
        """The keys of the way itself, with `via`."""
        return {"via": self.via, **self._own}

    @model_validator(mode="wrap")
    @classmethod
    def _keys_of_the_way(
        cls, data: Any, handler: ModelWrapValidatorHandler[BootOptions]
    ) -> BootOptions:
        from tailtap.measure.testbed.boot import checked

        if not isinstance(data, Mapping):
            return handler(data)
        own = {key: value for key, value in data.items() if key not in cls.model_fields}
        options = handler({key: value for key, value in data.items() if key not in own})
        with as_value_error():
            checked({"via": options.via, **own})
        options._own = own
        if options.append is not None:
            check_boot(options.append)
        return options

"""libpcap's filters, compiled by libpcap."""

from __future__ import annotations

import ctypes.util

import pytest

from tailtap.base.errors import InputError, MachineError
from tailtap.base.packet_filters import compile_filter

needs_libpcap = pytest.mark.skipif(
    ctypes.util.find_library("pcap") is None, reason="filters need libpcap"
)


@needs_libpcap
def test_a_filter_becomes_instructions_that_end_in_an_answer() -> None:
    found = compile_filter("udp port 53")
    # The ethertype first, and in the end a match and none.
    assert found[0] == (0x28, 0, 0, 12)
    assert {k for code, _, _, k in found if code == 0x06} == {0, 262_144}
    jumps = [(place, one) for place, one in enumerate(found) if one[0] & 0x07 == 0x05]
    assert jumps and all(place + 1 + max(one[1:3]) < len(found) for place, one in jumps)


@needs_libpcap
def test_what_libpcap_does_not_understand_is_said_in_its_words() -> None:
    with pytest.raises(InputError, match=r"^--filter 'udp prot 5': .*syntax error"):
        compile_filter("udp prot 5")


def test_without_libpcap_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(MachineError, match=r"apt-get install libpcap0\.8"):
        compile_filter("udp")

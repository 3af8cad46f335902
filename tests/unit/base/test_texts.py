"""Texts as people write them, and as nobody should: quantities, YAML, filters, and errors."""

from __future__ import annotations

import ctypes.util
import json
import pickle
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.document import MAX_DEPTH, load, parse, parse_value
from tailtap.base.errors import (
    Bug,
    InputError,
    InputErrors,
    MachineError,
    NotWritten,
    QuantityError,
    TailtapError,
    naming,
)
from tailtap.base.packet_filters import compile_filter
from tailtap.base.units import (
    TIME_UNITS,
    cpu_mask,
    list_cpus,
    parse_cpus,
    parse_rate,
    parse_share,
    parse_size,
    parse_time,
)
from tailtap.remote import CommandFailed, NoAnswer, ProgramMissing
from tailtap.remote.session import error_of, told

LARGEST = 9 * 10**18


@given(
    whole=st.integers(0, 10**20),
    decimals=st.text("0123456789", max_size=30),
    exponent=st.none() | st.integers(0, 10**13),
    unit=st.sampled_from(list(TIME_UNITS)),
)
def test_a_time_is_exact_or_refused(
    whole: int, decimals: str, exponent: int | None, unit: str
) -> None:
    number = f"{whole}.{decimals}" if decimals else str(whole)
    text = f"{number}{'' if exponent is None else f'e{exponent}'} {unit}"
    with localcontext(prec=200):
        value = Decimal(number) * TIME_UNITS[unit]
        value = value.scaleb(exponent or 0) if (exponent or 0) <= 30 else Decimal("inf")
        if value > LARGEST:
            with pytest.raises(InputError):
                parse_time(text)
        else:
            assert parse_time(text) == int(value.to_integral_value(ROUND_HALF_EVEN))


def test_the_largest_quantities() -> None:
    assert parse_time("9e18 ns") == parse_size("9000000000000000000 B") == LARGEST
    assert parse_rate("9000000000000.000000 Mpkt/s") == LARGEST
    with pytest.raises(InputError, match="is too large for a time: the most is 9e18 ns"):
        parse_time("9000000000000000001 ns")


@pytest.mark.parametrize(
    ("text", "share"), [("100 %", 1.0), ("1", 1.0), ("0.5%", 0.005), ("0.005", 0.005), ("0", 0.0)]
)
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["1.01", "100.1 %", "1e30", "1e999999999", "1e999999999%"])
def test_a_share_of_more_than_everything(text: str) -> None:
    with pytest.raises(InputError, match="more than everything"):
        parse_share(text)


def test_lists_of_cpus() -> None:
    assert parse_cpus("0-2,5,8-9\n") == (0, 1, 2, 5, 8, 9)
    assert parse_cpus("\n") == ()
    assert list_cpus((3, 1)) == "1,3"


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [
        ([0], "00000001"),
        ([1], "00000002"),
        ([0, 1, 5], "00000023"),
        ([31], "80000000"),
        ([32], "00000001,00000000"),
        ([0, 64], "00000001,00000000,00000001"),
    ],
)
def test_cpu_masks_are_written_as_the_kernel_reads_them(cpus: list[int], mask: str) -> None:
    assert cpu_mask(cpus) == mask


def test_a_list_holds_no_more_cpus_than_a_kernel_has() -> None:
    for text in ("0-99999999999", "99999999999"):
        with pytest.raises(ValueError, match="no machine has a CPU 99999999999"):
            parse_cpus(text)
    assert parse_cpus("0-8191")[-1] == 8191


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0x" + "f" * 6000, "e.yaml:2: b: a number has 20 digits at most"),
        ("1" * 21, "e.yaml:2: b: a number has 20 digits at most"),
        ("[" * 3000, "e.yaml:2: more than 50 lists and mappings in a row"),
        ("[" * 3000 + "]" * 3000, "e.yaml:2: more than 50 lists and mappings in a row"),
    ],
)
def test_what_nobody_means_is_refused_with_its_line(value: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"name: a\nb: {value}\n", "e.yaml")
    assert str(caught.value) == said


def test_the_deepest_and_the_largest() -> None:
    lists = MAX_DEPTH - 1  # they lie in a mapping
    assert parse_value("[" * lists + "]" * lists, "--set") is not None
    assert parse_value("-9223372036854775808", "--set") == -(2**63)


def test_a_path_of_too_many_keys_is_refused() -> None:
    document = parse("name: a\n", "e.yaml")
    with pytest.raises(InputError, match="--set x: a key path has 50 parts at most"):
        document.with_value(("a",) * 3000, 1, "--set x")


def test_a_file_without_an_end_is_no_experiment() -> None:
    with pytest.raises(InputError, match="more than 1 MB"):
        load(Path("/dev/zero"), named=True)
    with pytest.raises(InputError, match="no regular file"):
        load(Path("/dev/zero"))


@pytest.mark.parametrize("text", ['name: "\\ud800"', '"\\udfff": x', 'name: "a\\0b"'])
def test_what_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^x.yaml:2: .* has a zero byte or half a character"):
        parse(f"a: 1\n{text}\n", "x.yaml")


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


ERRORS = [
    InputError("a line"),
    MachineError("a line", place="x/y", remedy="make room"),
    InputErrors(["one", "two"]),
    QuantityError("'3' is no time", "3"),
    NotWritten("cannot write: full", place="x", remedy="make room"),
    CommandFailed(["ip", "link"], "no\nsuch"),
    NoAnswer(["ip", "link"], 2.5),
    ProgramMissing("xdp", "install it", host="namespace a"),
    Bug("a bug", "Traceback"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_it_was(error: TailtapError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    crossed = error_of(json.loads(json.dumps(told(error))), "the far end")
    for back in (copy, crossed):
        assert type(back) is type(error)
        assert back.exit_status == error.exit_status
        assert {**vars(back), "place": ""} == {**vars(error), "place": ""}
    assert str(copy) == str(error)
    assert str(crossed) == f"the far end: {error}"
    assert [f"the far end: {line}" for line in error.lines] == list(crossed.lines)


@pytest.mark.parametrize(
    ("status", "kind"), [(2, InputError), (3, MachineError), (70, Bug), (9, MachineError)]
)
def test_a_class_that_is_not_known_here_is_that_of_its_status(
    status: int, kind: type[TailtapError]
) -> None:
    fields = {"what": "a line", "place": "", "remedy": "", "told": ""}
    back = error_of({"kind": "Newer", "status": status, "fields": fields}, "far")
    assert (type(back), str(back)) == (kind, "far: a line")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "MachineError", "status": 3},
        {"kind": "MachineError", "status": 3, "fields": {"what": 5, "place": "", "remedy": ""}},
        {"kind": "NoAnswer", "status": 3, "fields": {"what": "", "place": "", "remedy": ""}},
    ],
)
def test_what_is_no_error_is_told(said: dict[str, object]) -> None:
    back = error_of(said, "far")
    assert type(back) is MachineError
    assert str(back).startswith("far: ")


def test_a_place_is_put_before_the_places_of_an_error() -> None:
    """Its class stays: who catches a `QuantityError` still does."""
    with (
        pytest.raises(QuantityError, match=r"^dut: rate: 'x' is no rate$"),
        naming("dut"),
        naming("rate"),
    ):
        raise QuantityError("'x' is no rate", "x")


def test_another_place_helps_beside_what_helps_against_the_reason() -> None:
    plain = NotWritten("cannot write: no", place="x")
    full = NotWritten("cannot write: full", place="x", remedy="make room")
    assert str(plain.or_elsewhere("choose another --out")).endswith(": no: choose another --out")
    assert str(full.or_elsewhere("y")) == "x: cannot write: full: make room or y"
    assert str(full) == "x: cannot write: full: make room"

"""What identifies is replaced, the same by the same, and nothing else is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.records.site import RedactedKind
from tailtap.show.publish.redaction import Redactor


def taught(*values: object, **settings: object) -> Redactor:
    redactor = Redactor(**settings)  # type: ignore[arg-type]
    for value in values:
        redactor.learn(value)
    return redactor


def test_a_machine_has_one_name_in_all_its_spellings() -> None:
    redactor = taught({"hostname": "tulip.net.example.edu"})
    text = "tulip, TULIP.net.example.edu and tulip.other.example.edu; not tulips"
    assert redactor.text(text) == "host-1, host-1 and host-1; not tulips"


def test_machines_with_the_same_first_name_stay_apart() -> None:
    redactor = taught({"hostname": "www.one.edu"}, {"hostname": "www.two.edu"})
    assert redactor.text("www.one.edu www.two.edu") == "host-1 host-2"


def test_a_name_that_is_a_word_of_the_experiment_is_replaced_in_its_field_alone() -> None:
    record = {"environment": {"hostname": "vm"}, "parameters": {"dut": {"platform": "vm"}}}
    redactor = taught(record)
    assert redactor.json(record) == {
        "environment": {"hostname": "host-1"},
        "parameters": {"dut": {"platform": "vm"}},
    }
    assert redactor.ambiguous["hostnames"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "0000:03:00.0",
        "14:05:30",
        "6.18.5",
        "firmware 9.30.0.1",
        "v22.11.0.4",
        "127.0.0.1:80",
        "ff:ff:ff:ff:ff:ff",
        "198.18.0.1 > 198.18.0.2",
        "0-3,8-11",
        "std::vector",
        "p99.999 < 1 ms",
        "root@host-1",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_packets_of_the_experiment_keep_their_addresses() -> None:
    redactor = Redactor(kept_addresses=["10.0.0.1-10.0.0.9", "fd00::1"])
    assert redactor.text("10.0.0.9 10.0.0.10 fd00::1 fd00::2") == (
        "10.0.0.9 192.0.2.1 fd00::1 2001:db8::1"
    )


def test_what_stands_for_an_address_is_nobody_elses() -> None:
    redactor = Redactor(kept_addresses=["192.0.2.1"])
    assert redactor.text("8.8.8.8 192.0.2.1 192.0.2.2") == "192.0.2.2 192.0.2.1 192.0.2.3"


def test_kinds_that_are_allowed_stay() -> None:
    text = "tulip at 8.8.8.8, 3c:fd:fe:a1:b2:c3, /home/ada"
    kinds: tuple[RedactedKind, ...] = ("hostnames", "addresses", "macs", "users")
    assert taught({"hostname": "tulip"}, text, allowed=kinds).text(text) == text


def test_a_review_hears_neither_days_nor_folders_nor_what_is_hidden() -> None:
    text = "2026-03-14T15:09:26+00:00 by the Chair of Nets in /srv/ada/run/x.stamps, /proc/stat"
    redactor = taught(text, anonymous=True, hidden=["Chair of Nets"])
    assert redactor.text(text) == (
        "2026-03-01T00:00:00+00:00 by the name-1 in /folder-1/x.stamps, /proc/stat"
    )


def test_passwords_are_never_allowed() -> None:
    record = {"password": "hunter22"}
    redactor = taught(record, "login failed: hunter22")
    assert redactor.json(record) == {"password": "secret-1"}
    assert redactor.text("login failed: hunter22") == "login failed: secret-1"


def test_texts_of_tables_are_replaced_at_any_depth() -> None:
    table = pa.table(
        {
            "key": ["8.8.8.8 > 9.9.9.9", None, "8.8.8.8 > 9.9.9.9"],
            "parts": [[{"detail": "on tulip"}], [], None],
            "n": [1, 2, 3],
        }
    )
    after = taught({"hostname": "tulip"}).table(table)
    assert after.schema == table.schema
    assert after.to_pydict() == {
        "key": ["192.0.2.1 > 192.0.2.2", None, "192.0.2.1 > 192.0.2.2"],
        "parts": [[{"detail": "on host-1"}], [], None],
        "n": [1, 2, 3],
    }
    plain = table.select(["n"])
    assert Redactor().table(plain) is plain


MACS = st.binary(min_size=6, max_size=6).map(lambda raw: ":".join(f"{byte:02x}" for byte in raw))


@given(st.lists(MACS, max_size=20))
def test_equal_addresses_stay_equal_and_others_differ(macs: list[str]) -> None:
    redactor = Redactor()
    named = redactor.text(" ".join(macs)).split()
    pairs = {(one, name) for one, name in zip(macs, named, strict=True)}
    assert len(pairs) == len(set(macs)) == len(set(named))

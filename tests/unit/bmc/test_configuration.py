"""What `tailtap bmc` reads: its file, its words, its credentials; its page names every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from controlled import PASSWORD, USER, credentials
from msgspec.structs import replace

from tailtap.base.errors import InputError
from tailtap.bmc import MACHINES
from tailtap.bmc.serving import BmcEvent, parse_listen, read, read_users
from tailtap.cli.machine import sentence
from tailtap.measure.testbed.power import POWERS

FILE = """\
credentials: users
machines:
  - {kind: lxc, name: web, listen: 6230}
  - kind: libvirt
    name: guest1
    uri: qemu:///session
    listen: "[::1]:6231"
"""


def error_of(folder: Path, text: str) -> str:
    """The one line that the file with this text causes, without its folder."""
    path = folder / "bmc.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as found:
        read(path)
    assert "\n" not in str(found.value)
    return str(found.value).replace(f"{folder}/", "")


def test_a_file_names_machines(tmp_path: Path) -> None:
    credentials(tmp_path)
    (tmp_path / "bmc.yaml").write_text(FILE)
    found = read(tmp_path / "bmc.yaml")
    assert found.users == {USER: PASSWORD}
    assert [(one.name, one.listen, one.exposed) for one in found.served] == [
        ("lxc:web", ("127.0.0.1", 6230), False),
        ("libvirt:guest1", ("::1", 6231), False),
    ]


def test_words_name_machines(tmp_path: Path) -> None:
    words = ["lxc:web@6230", "libvirt:a:b@c@0.0.0.0:623", "lxc:x@0", "lxc:y@0"]
    found = read(None, words, credentials(tmp_path))
    assert [(one.name, one.listen, one.exposed) for one in found.served] == [
        ("lxc:web", ("127.0.0.1", 6230), False),
        ("libvirt:a:b@c", ("0.0.0.0", 623), True),
        ("lxc:x", ("127.0.0.1", 0), False),
        ("lxc:y", ("127.0.0.1", 0), False),
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("kind: lxc", "kind: lcx", "bmc.yaml:3: machines[0].kind: there is no kind of machine"),
        ("kind: lxc, ", "", "bmc.yaml:3: machines[0].kind: this key is missing"),
        ("name: web, ", "", "bmc.yaml:3: machines[0].name: this key is missing"),
        ("uri:", "url:", "bmc.yaml:6: machines[1].url: unknown key: did you mean 'uri'"),
        ("name: web", "name: -web", "bmc.yaml:3: machines[0].name: "),
        ("6230", "localhost:1", "bmc.yaml:3: machines[0].listen: 'localhost:1' is no address: "),
        ("6230", "true", "bmc.yaml:3: machines[0].listen: True is no address: "),
        ("6230", "65536", "bmc.yaml:3: machines[0].listen: 65536 is no address: "),
        ("credentials: users\n", "", "bmc.yaml:1: credentials: this key is missing"),
        ("machines:", "machine:", "bmc.yaml:2: machine: unknown key: did you mean 'machines'"),
        ("credentials: users", "credentials: nowhere", "cannot read the passwords in nowhere: "),
    ],
)
def test_mistakes_have_their_line(tmp_path: Path, before: str, after: str, message: str) -> None:
    credentials(tmp_path)
    assert before in FILE
    assert error_of(tmp_path, FILE.replace(before, after, 1)).startswith(message)


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ([], "nothing to serve: give a FILE, or --serve KIND:NAME@LISTEN"),
        (["web@1"], "--serve 'web@1': write it as KIND:NAME@LISTEN"),
        (["lxc:web"], "--serve 'lxc:web': write it as KIND:NAME@LISTEN"),
        (["lxc:web@x"], "--serve 'lxc:web@x': "),
        (["command:x@1"], "--serve 'command:x@1': "),
        (["lxc:a@1", "lxc:a@2"], "the machine lxc:a is given twice"),
        (["lxc:a@1", "lxc:b@1"], "the address 127.0.0.1:1 is given twice"),
    ],
)
def test_wrong_words_are_quoted(tmp_path: Path, serve: list[str], message: str) -> None:
    with pytest.raises(InputError) as found:
        read(None, serve, credentials(tmp_path))
    assert str(found.value).startswith(message)
    assert "\n" not in str(found.value)


def test_credentials_are_asked_for() -> None:
    with pytest.raises(InputError, match="credentials is missing"):
        read(None, ["lxc:web@1"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "credentials are lines of 'name: password'"),
        ("{}", "there is no user"),
        ("admin: 1234", "admin: a password is text: put quotes around it"),
        ("admin: ''", "admin: passwords have 1 to 20 bytes in IPMI"),
        ("admin: abcdefghijklmnopqrstu", "admin: passwords have 1 to 20 bytes in IPMI"),
        ("a_name_of_17_byte: x", "a_name_of_17_byte: names have 16 bytes at most in IPMI"),
    ],
)
def test_credentials_must_fit_ipmi(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "users"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(InputError) as found:
        read_users(path)
    assert message in str(found.value)


@pytest.mark.parametrize("text", ["", ":", "x", "1.2.3.4", "1.2.3:5", "[::1", "-1", "1:2:3", "٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        parse_listen(text)


def test_other_addresses_than_loopback_are_told() -> None:
    row = BmcEvent(event="listening", machine="lxc:web", address="10.0.0.1:623", exposed=False)
    assert sentence(row) == "lxc:web listens on 10.0.0.1:623"
    assert "whoever reaches this address" in sentence(replace(row, exposed=True))


PAGE = (Path(__file__).parents[3] / "docs/howto/bmc.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("rows", "heading"), [(MACHINES, "# Controllers"), (POWERS, "## Switching")]
)
def test_the_page_names_every_key(rows: object, heading: str) -> None:
    section = PAGE[PAGE.index(heading) :]
    assert isinstance(rows, type(MACHINES))
    for name, kind in rows.working():
        [row] = re.findall(rf"^\| `{name}` \|.*$", section, re.MULTILINE)[:1]
        keys = set(kind.Options.model_fields) - {"name"}
        assert keys <= set(re.findall(r"`(\w+)[`:]", row)), name

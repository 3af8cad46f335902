"""Booting hosts: what they are booted with, what is checked, and hosts that do not come back."""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from children import free_port

from tailtap.base.errors import InputError, MachineError
from tailtap.host.containers.cgroups import HIERARCHY
from tailtap.measure.boots import Wanted
from tailtap.measure.testbed.boot import (
    BootOptions,
    Commanded,
    CommandedOptions,
    Files,
    Grub,
    GrubOptions,
    Kexec,
    booting,
    entry,
)
from tailtap.measure.testbed.boot.booting import Booting, Told, files_of, verify
from tailtap.measure.testbed.boot.ipxe import Ipxe, IpxeOptions, script
from tailtap.measure.testbed.image import write_cpio
from tailtap.measure.testbed.model import read_testbed
from tailtap.measure.testbed.ssh import FarHost
from tailtap.remote import Completed

USUAL = "root=/dev/sda1 ro console=ttyS0"
BOOT = "vmlinuz-6.1.0-9-amd64 vmlinuz-6.1.0-10-amd64 vmlinuz-6.1.0-10-rt-amd64\n"
INITRDS = "initrd.img-6.1.0-10-amd64 initrd.img-6.1.0-10-rt-amd64 initrd.img-6.1.0-9-amd64\n"


class Host:
    """A host whose commands have their answers; `asked` has the commands."""

    name = "dut"

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def run(self, command: list[str], *, check: bool = True, seconds: float = 0) -> Completed:
        self.asked.append(command)
        for word, answer in self.answers.items():
            if word in " ".join(command):
                return Completed(answer, "", 0)
        return Completed("", "", 0)

    def put(self, source: Path, target: str) -> None:
        self.asked.append(["put", str(source), target])


def told(line: str = f"BOOT_IMAGE=/vmlinuz {USUAL}", **changes: Any) -> Told:
    what: dict[str, Any] = {"boot_id": "a", "release": "6.1.0-10-amd64", "cgroup": 2}
    return Told(**{**what, **changes}, line=line)


def files(wanted: Wanted, before: Told, **options: Any) -> Files:
    host = cast("FarHost", Host(vmlinuz=BOOT + INITRDS))
    return files_of(host, before, BootOptions(via="kexec", **options), wanted)


@pytest.mark.parametrize(
    ("kernel", "runs", "release"),
    [
        (None, "6.1.0-10-amd64", "6.1.0-10-amd64"),
        ("vanilla", "6.1.0-10-amd64", "6.1.0-10-amd64"),
        ("vanilla", "6.1.0-10-rt-amd64", "6.1.0-10-amd64"),  # the newest: 10 comes after 9
        ("rt", "6.1.0-10-amd64", "6.1.0-10-rt-amd64"),
        ("6.1.0-9", "6.1.0-10-amd64", "6.1.0-9-amd64"),
        ("6", "6.1.0-10-amd64", "6.1.0-10-rt-amd64"),  # the beginning of a version, up to a dot
        ("/boot/vmlinuz-6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.0-9-amd64"),
    ],
)
def test_a_host_boots_a_kernel_of_its_own(kernel: str | None, runs: str, release: str) -> None:
    found = files(Wanted(kernel, "nohz_full=1"), told(release=runs))
    assert (found.kernel, found.initrd) == (
        f"/boot/vmlinuz-{release}",
        f"/boot/initrd.img-{release}",
    )
    assert found.release == release
    assert found.line == f"{USUAL} tailtap.default={runs} nohz_full=1"


def test_the_usual_words_are_known_after_any_boot() -> None:
    first = files(Wanted("rt", "nohz=off"), told())
    again = files(Wanted(None, "quiet"), told(first.line, release="6.1.0-10-rt-amd64"))
    assert again.line == f"{USUAL} tailtap.default=6.1.0-10-amd64 quiet"
    assert again.release == "6.1.0-10-amd64"  # the default one, not the one that runs
    assert files(Wanted(None, ""), told(), append="ro").line.startswith("ro tailtap.default=")


@pytest.mark.parametrize("kernel", ["5.10", "/boot/bzImage"])
def test_a_kernel_that_is_not_there_is_named(kernel: str) -> None:
    with pytest.raises((InputError, MachineError), match=rf"dut\.kernel: .*{re.escape(kernel)}"):
        files(Wanted(kernel, ""), told())


def test_live_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no live image rt: there are vanilla"):
        files(Wanted("rt", ""), told(), images={"vanilla": str(tmp_path)})
    with pytest.raises(InputError, match=r"there is no .*vmlinuz: `tailtap testbed image`"):
        files(Wanted(None, ""), told(), images={"vanilla": str(tmp_path)})
    with pytest.raises(InputError, match="say which live image: a, b"):
        files(Wanted(None, ""), told(), images={"a": "a", "b": "b"})


LINE = f"{USUAL} tailtap.default=6.1 isolcpus=1,2 {HIERARCHY}=0"
GOOD = Told("b", "6.1.0-10-amd64", 1, f"BOOT_IMAGE=/x {LINE.replace('1,2', '1-2')}")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"boot_id": "a"}, "did not reboot"),
        ({"release": "6.1.0-9-amd64"}, r"booted 6\.1\.0-9-amd64, not 6\.1\.0-10-amd64"),
        ({"line": GOOD.line.replace(" ro ", " ")}, "without ro:"),
        ({"line": GOOD.line.replace("1-2", "1")}, "without isolcpus=1,2:"),
        ({"cgroup": 2}, "its control groups are of version 2"),
    ],
)
def test_what_is_checked_after_a_boot(changes: dict[str, Any], said: str | None) -> None:
    asked = Files("/boot/vmlinuz", None, "6.1.0-10-amd64", LINE, ours=False)
    now = Told(**{**GOOD.__dict__, **changes})
    if said is None:
        verify("dut", "a", now, asked)
    else:
        with pytest.raises(MachineError, match=f"dut .*{said}|dut {said}"):
            verify("dut", "a", now, asked)


class Bench:
    """A host whose boots come out as is said beforehand, and the clock that its controller has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, comes: bool, power: bool = True) -> None:
        self.now = 0.0
        self.boots = 1
        self.alive = True
        self.comes = comes
        self.cycles = 0
        self.tried = 0
        self.line = USUAL
        self.said: list[str] = []
        monkeypatch.setattr(booting, "FarHost", lambda station: contextlib.nullcontext(self))
        monkeypatch.setattr(booting, "told_by", lambda host: told(self.line, boot_id=self.boot_id))
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)
        options = BootOptions.model_validate({"via": "kexec", "timeout": "60 s"})
        ours = cast("Any", self)
        self.booting = Booting(ours, options, ours, ours if power else None, self.said.append)
        self.name = "dut"
        self.answers = {"vmlinuz": BOOT + INITRDS}

    @property
    def boot_id(self) -> str:
        return str(self.boots)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def shell(self, script: str) -> list[str]:
        """What answers a question by ssh."""
        return ["echo", self.boot_id] if self.alive else ["false"]

    def run(self, command: list[str], **how: Any) -> Completed:
        return Completed(BOOT + INITRDS, "", 0)

    @contextlib.contextmanager
    def boot(self, host: Any, files: Files) -> Iterator[None]:
        self.tried += 1
        self.alive = self.comes
        self.line = files.line
        self.boots += 1
        yield

    def tidy(self, host: Any) -> None:
        """Nothing is left."""

    def cycle(self) -> None:
        self.cycles += 1
        self.alive, self.line = True, USUAL
        self.boots += 1


def test_runs_of_one_boot_boot_once_and_each_repeat_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, comes=True)
    wanted = Wanted("vanilla", "nohz=off")
    first = bench.booting.bring(wanted, 1)
    assert bench.booting.bring(wanted, 1) == first
    assert bench.tried == 1
    assert first is not None
    assert first.command_line.endswith("nohz=off")
    again = bench.booting.bring(wanted, 2)
    assert again is not None
    assert again.boot_id != first.boot_id
    assert bench.tried == 2
    assert bench.booting.bring(None, 2) is None


@pytest.mark.parametrize("hangs", [False, True])
def test_a_host_that_left_its_boot_between_runs_is_booted_again(
    monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    """It rebooted by itself, or it hangs and is power-cycled first."""
    bench = Bench(monkeypatch, comes=True)
    bench.booting.bring(Wanted(None, "a"), 1)
    bench.boots += 1
    bench.alive = not hangs
    bench.booting.bring(Wanted(None, "a"), 1)
    assert (bench.cycles, bench.tried) == (hangs, 2)


def test_a_host_that_does_not_come_back_is_cycled_once_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, comes=False)
    for _ in range(2):  # the second run of that boot is told the same, at once
        with pytest.raises(MachineError, match=r"within 60 s of booting .* after a power cycle"):
            bench.booting.bring(Wanted(None, "panic"), 1)
    assert (bench.cycles, bench.tried) == (1, 1)
    bench.comes = True
    found = bench.booting.bring(Wanted(None, "good"), 1)
    assert found is not None
    assert found.release == "6.1.0-10-amd64"
    assert "switching it off and on" in " ".join(bench.said)


def test_a_command_boots_a_host_that_is_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is told what the run asks for, each within its word; what comes up is compared."""
    came = tmp_path / "came"
    bench = Bench(monkeypatch, comes=True)
    monkeypatch.setattr(bench, "shell", lambda script: ["cat", str(came)])

    def up(host: Any) -> Told:
        return told(bench.line, boot_id=came.read_text().strip(), release="5.10-rt")

    monkeypatch.setattr(booting, "told_by", up)
    script = f'echo "$1|$2|$3" > {came}'
    command = f"sh -c '{script}' boot {{host}} {{kernel}} {{boot}}"
    options = BootOptions.model_validate({"command": command, "append": "ro", "timeout": "60 s"})
    way = Commanded("dut", CommandedOptions(command=options.own["command"]))
    ours = cast("Any", bench)
    made = Booting(ours, options, way, None, bench.said.append)
    bench.line = "BOOT_IMAGE=/x ro nohz=off"
    found = made.bring(Wanted("bullseye-rt", "nohz=off"), 1)
    assert found is not None
    assert (found.via, found.boot_id) == ("command", "dut|bullseye-rt|ro nohz=off")
    with pytest.raises(MachineError, match=r"booted 5\.10-rt without isolcpus=1"):
        made.bring(Wanted("bullseye-rt", "isolcpus=1"), 1)
    assert made.default().boot_id == "dut||ro"
    plain = Commanded("dut", CommandedOptions(command="reset {host}"))
    with pytest.raises(InputError, match=r"dut.kernel: rt: .* has no {kernel}"):
        plain.files("rt", "")
    assert plain.files(None, "").line == ""


def test_a_changed_host_key_is_no_reason_for_a_power_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, comes=True)
    refuses = ["sh", "-c", "echo 'Host key verification failed.' >&2; exit 255"]
    monkeypatch.setattr(bench, "shell", lambda script: refuses)
    with pytest.raises(MachineError, match="dut: its host key is not the one that ssh knows"):
        bench.booting.bring(Wanted(None, "a"), 1)
    assert (bench.cycles, bench.tried) == (0, 0)


def test_without_power_a_host_that_is_away_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, comes=False, power=False)
    with pytest.raises(MachineError, match=r"nothing can switch it off and on: see hosts\.dut\."):
        bench.booting.bring(Wanted(None, "panic"), 1)
    with pytest.raises(MachineError, match="dut does not answer, and nothing can switch it"):
        bench.booting.bring(Wanted(None, "good"), 1)


def test_an_entry_of_grub_quotes_what_its_language_would_read() -> None:
    text = entry("ro a=$x b={1;2}", "12-34", ["/vmlinuz", "/initrd"])
    assert "  linux /vmlinuz ro 'a=$x' 'b={1;2}'\n  initrd /initrd\n}" in text
    assert "search --no-floppy --fs-uuid --set=root 12-34" in text


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "there is no grub-editenv"),
        ({"cat /boot": "set default=0", "command -v": "x"}, "does not know entries for one boot"),
        ({"cat /boot": "next_entry", "command -v": "x"}, r"does not read custom\.cfg"),
        (
            {"cat /boot": "next_entry custom.cfg", "abstraction": "lvm", "command -v": "x"},
            "which is on lvm, so it",
        ),
        (
            {"cat /boot": "next_entry custom.cfg", "=fs ": "btrfs", "command -v": "x"},
            "which is on btrfs, so it",
        ),
    ],
)
def test_grub_is_refused_where_one_boot_would_be_a_loop(answers: dict[str, str], said: str) -> None:
    host = cast("FarHost", Host(**answers))
    asked = Files("/boot/vmlinuz", None, "6.1", "ro", ours=False)
    with pytest.raises(MachineError, match=said), Grub(GrubOptions()).boot(host, asked):
        pass
    assert not any("reboot" in command for command in cast("Host", host).asked)


def test_ipxe_serves_what_is_booted_and_nothing_else(tmp_path: Path) -> None:
    kernel, initrd = tmp_path / "vmlinuz", tmp_path / "initrd"
    kernel.write_bytes(b"kernel")
    initrd.write_bytes(b"initrd" * 100_000)
    asked = Files(str(kernel), str(initrd), "6.1", "ro quiet", ours=True)
    port = free_port()
    options = IpxeOptions(address="127.0.0.1", port=port)
    where = f"http://127.0.0.1:{port}"
    with Ipxe("dut", options).boot(cast("FarHost", Host()), asked):
        got = urllib.request.urlopen(f"{where}/dut.ipxe").read().decode()
        assert got == script("dut", asked)
        assert "kernel dut/vmlinuz initrd=initrd ro quiet\ninitrd dut/initrd\n" in got
        assert urllib.request.urlopen(f"{where}/dut/initrd").read() == initrd.read_bytes()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{where}/../../etc/passwd")
    with (
        pytest.raises(MachineError, match=f"did not ask for {where}/dut.ipxe"),
        Ipxe("dut", options).boot(cast("FarHost", Host()), asked),
    ):
        pass


@pytest.fixture
def live(tmp_path: Path) -> Files:
    for name in ("vmlinuz", "host-key.cpio", "initrd"):
        (tmp_path / name).write_bytes(name.encode())
    kernel, key, initrd = (str(tmp_path / name) for name in ("vmlinuz", "host-key.cpio", "initrd"))
    return Files(kernel, initrd, "6.1", "ro quiet", ours=True, key=key)


def get(where: str, path: str, source: str = "127.0.0.1") -> tuple[int, bytes]:
    """What a client with an address of its own is answered."""
    connection = http.client.HTTPConnection(where, timeout=10, source_address=(source, 0))
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_ipxe_serves_the_host_s_key_once_to_who_boots(live: Files) -> None:
    options = IpxeOptions(address="127.0.0.1", port=free_port())
    where = f"127.0.0.1:{options.port}"
    with Ipxe("dut", options).boot(cast("FarHost", Host()), live):
        assert get(where, "/dut/host-key.cpio", "127.0.0.9")[0] == 403
        said = get(where, "/dut.ipxe")[1].decode()
        assert said.splitlines()[1:4] == [
            "kernel dut/vmlinuz initrd=host-key.cpio initrd=initrd ro quiet",
            "initrd dut/host-key.cpio",
            "initrd dut/initrd",
        ]
        assert get(where, "/dut/host-key.cpio", "127.0.0.9")[0] == 403
        assert get(where, "/dut/host-key.cpio") == (200, b"host-key.cpio")
        assert get(where, "/dut/initrd") == (200, b"initrd")


def test_a_second_one_who_asks_for_the_host_s_key_is_told(live: Files) -> None:
    options = IpxeOptions(address="127.0.0.1", port=free_port())
    where = f"127.0.0.1:{options.port}"
    with (
        pytest.raises(MachineError, match=r"dut: its host key .* by 127\.0\.0\.9 .*127\.0\.0\.1 "),
        Ipxe("dut", options).boot(cast("FarHost", Host()), live),
    ):
        for source, status in (("127.0.0.9", 200), ("127.0.0.1", 403)):
            assert get(where, "/dut.ipxe", source)[0] == 200
            assert get(where, "/dut/host-key.cpio", source)[0] == status


def test_by_kexec_and_grub_the_key_goes_before_the_image(live: Files) -> None:
    host = Host()
    with Kexec().boot(cast("FarHost", host), live):
        pass
    [joined] = [one for one in host.asked if 'cat "$@" > "$0"' in one]
    assert [Path(path).name for path in joined[3:]] == ["joined", "host-key.cpio", "initrd"]
    [load] = [one for one in host.asked if "--load" in one]
    assert [word for word in load if word.startswith("--initrd")] == [f"--initrd={joined[3]}"]
    assert "  initrd /key /initrd\n}" in entry("ro", "12-34", ["/vmlinuz", "/key", "/initrd"])


def test_an_initrd_is_what_the_tar_file_is(tmp_path: Path) -> None:
    """cpio unpacks it, as the kernel would."""
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/file").write_bytes(b"12345")
    (root / "a/file").chmod(0o640)
    (root / "a/link").symlink_to("file")
    (root / "hard").hardlink_to(root / "a/file")
    packed = tmp_path / "root.tar"
    with tarfile.open(packed, "w") as content:
        content.add(root, ".")
    archive = io.BytesIO()
    with packed.open("rb") as source:
        write_cpio(source, archive)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    assert shutil.which("cpio"), "install cpio"
    subprocess.run(["cpio", "--quiet", "-idm"], input=archive.getvalue(), cwd=unpacked, check=True)
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*")}
    assert found == {"a", "a/b", "a/file", "a/link", "hard"}
    assert (unpacked / "a/file").stat().st_mode == (root / "a/file").stat().st_mode
    assert (unpacked / "hard").read_bytes() == b"12345"
    assert (unpacked / "a/link").readlink() == Path("file")


TESTBED = """\
hosts:
  tester: {ssh: root@tester}
  dut: {ssh: root@dut, boot: BOOT}
cables:
  - {ends: [tester:c0, dut:c0]}
  - {ends: [dut:c1, tester:c1]}
roles: {dut: dut, generator: tester, timestamper: tester}
"""


@pytest.mark.parametrize(
    ("boot", "said"),
    [
        ("{via: kexex}", r"lab.yaml:3: hosts\.dut\.boot: .*no boot way 'kexex'"),
        ("{via: kexec, port: 80}", r"lab.yaml:3: hosts\.dut\.boot.*port"),
        ("{via: ipxe}", r"lab.yaml:3: hosts\.dut\.boot.*address"),
        ("{images: {a: b}}", r"lab.yaml:3: hosts\.dut\.boot.*via"),
        ("{via: kexec, timeout: 5}", r"lab.yaml:3: hosts\.dut\.boot.*timeout"),
    ],
)
def test_boot_ways_in_a_testbed_file_are_checked(tmp_path: Path, boot: str, said: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(TESTBED.replace("BOOT", boot))
    with pytest.raises(InputError, match=said):
        read_testbed(path)


def test_live_images_are_beside_the_testbed_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(TESTBED.replace("BOOT", "{via: grub, folder: /boot/grub2, images: {rt: rt}}"))
    options = read_testbed(path).hosts["dut"].boot
    assert options is not None
    assert options.images == {"rt": str(tmp_path / "rt")}
    assert options.own == {"via": "grub", "folder": "/boot/grub2"}
    path.write_text(TESTBED.replace("ssh: root@dut, boot: BOOT", "boot: {via: kexec}"))
    with pytest.raises(InputError, match="dut is this machine, which cannot boot itself"):
        read_testbed(path)

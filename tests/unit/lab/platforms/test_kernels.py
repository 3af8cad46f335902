"""Kernels by their Debian packages, and the one that runs, compared with what is asked for."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tailtap.base.errors import MachineError
from tailtap.lab.platforms.boot import check_host_kernel, check_kernel
from tailtap.lab.platforms.vm import kernels


class Package(NamedTuple):
    """A stanza of a list, and the files of the package."""

    name: str
    depends: str
    files: Sequence[str]


OLD, NEW = "6.1.0-56-amd64", "7.2.12+deb14-amd64"
RELEASES: Mapping[str, tuple[str, Sequence[Package]]] = {
    OLD: (
        "6.1.192-2",
        (
            Package("linux-image-amd64", f"linux-image-{OLD} (= 6.1.192-2)", ()),
            Package(
                f"linux-image-{OLD}",
                "kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | "
                "linux-initramfs-tool",
                [f"boot/vmlinuz-{OLD}", f"boot/config-{OLD}", f"lib/modules/{OLD}/modules.order"],
            ),
            Package("linux-base", "debconf (>= 0.5) | debconf-2.0", ["usr/bin/linux-version"]),
            Package("busybox-static", "", ["bin/busybox"]),
        ),
    ),
    NEW: (
        "7.2.12-1",
        (
            Package(
                "linux-image-amd64",
                f"linux-base-amd64 (= 7.2.12-1), linux-image-{NEW} (= 7.2.12-1)",
                (),
            ),
            Package("linux-base-amd64", f"linux-base-{NEW} (= 7.2.12-1)", ()),
            Package(
                f"linux-image-{NEW}",
                "dracut | initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool, "
                f"linux-base-{NEW} (= 7.2.12-1), linux-binary-{NEW} (= 7.2.12-1), "
                f"linux-modules-{NEW} (= 7.2.12-1)",
                (),
            ),
            Package(f"linux-base-{NEW}", "", [f"usr/lib/modules/{NEW}/config"]),
            Package(
                f"linux-binary-{NEW}",
                f"linux-base-{NEW} (= 7.2.12-1)",
                [f"usr/lib/modules/{NEW}/vmlinuz"],
            ),
            Package(
                f"linux-modules-{NEW}",
                f"kmod, linux-base-{NEW} (= 7.2.12-1)",
                [f"usr/lib/modules/{NEW}/modules.order"],
            ),
            Package("linux-base", "debconf (>= 0.5) | debconf-2.0", ["usr/bin/linux-version"]),
            Package("busybox-static", "", ["usr/bin/busybox"]),
        ),
    ),
}


def archive(folder: Path, release: str, without: str = "") -> Path:
    """An archive with the packages of a release; the file that makes apt use it alone."""
    version, packages = RELEASES[release]
    listed = []
    for package in packages:
        root = folder / "made" / package.name
        (root / "DEBIAN").mkdir(parents=True)
        stanza = (
            f"Package: {package.name}\nVersion: {version}\nArchitecture: amd64\n"
            "Maintainer: Nobody <nobody@example.org>\nDescription: of a test\n"
        ) + (f"Depends: {package.depends}\n" if package.depends else "")
        (root / "DEBIAN/control").write_text(stanza)
        for name in package.files:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(package.name)
        file = folder / f"{package.name}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(file)]
        subprocess.run(command, check=True, capture_output=True)
        told = subprocess.run(["sha256sum", str(file)], check=True, capture_output=True, text=True)
        listed.append(
            f"{stanza}Filename: ./{file.name}\nSize: {file.stat().st_size}\n"
            f"SHA256: {told.stdout.split()[0]}\n"
        )
        if package.name == without:
            file.unlink()
    (folder / "Packages").write_text("\n".join(listed))
    (folder / "state/lists/partial").mkdir(parents=True)
    (folder / "cache/archives/partial").mkdir(parents=True)
    (folder / "sources").mkdir()
    (folder / "sources/here.list").write_text(f"deb [trusted=yes] copy:{folder} ./\n")
    (folder / "status").touch()
    configuration = folder / "apt.conf"
    configuration.write_text(
        'Dir::Etc::sourcelist "/dev/null";\n'
        f'Dir::Etc::sourceparts "{folder}/sources";\n'
        f'Dir::State "{folder}/state";\n'
        f'Dir::State::status "{folder}/status";\n'
        f'Dir::Cache "{folder}/cache";\n'
        'APT::Architecture "amd64";\n'
        'APT::Sandbox::User "";\n'
    )
    return configuration


@pytest.fixture
def release(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A release whose packages this machine's apt gets, and what it is to lack, if anything."""
    name, without = request.param
    folder = tmp_path / "archive"
    folder.mkdir()
    monkeypatch.setenv("APT_CONFIG", str(archive(folder, name, without)))
    subprocess.run(["apt-get", "-qq", "update"], check=True, capture_output=True)
    monkeypatch.setattr(kernels, "CACHE", tmp_path / "cache")
    return str(name)


@pytest.mark.parametrize("release", [(OLD, ""), (NEW, "")], indirect=True, ids=["old", "new"])
def test_a_kernel_has_all_the_packages_that_it_is_split_into(release: str) -> None:
    assert kernels.to_download("vanilla") == ["linux-image-amd64", "busybox-static"]
    kernel = kernels.kernel("vanilla")
    assert kernel.release == release
    owner = f"linux-{'image' if release == OLD else 'binary'}-{release}"
    assert kernel.image.read_text() == owner
    assert kernel.config is not None and release in kernel.config.read_text()
    assert (kernel.modules / "modules.dep").is_file()  # made by depmod
    # What else the package depends on is no part of the kernel.
    assert not (kernels.folder_of("linux-image-amd64") / "usr/bin/linux-version").exists()
    assert kernels.shell().read_text() == "busybox-static"
    assert kernels.to_download("vanilla") == []
    (kernel.modules.parents[1] / "modules").rename(kernel.modules.parents[1] / "others")
    with pytest.raises(MachineError, match=r"there is no kernel with its modules in .*: remove it"):
        kernels.kernel("vanilla")


@pytest.mark.parametrize(
    "release", [(NEW, f"linux-modules-{NEW}")], indirect=True, ids=["no modules"]
)
def test_half_a_kernel_is_not_kept(release: str) -> None:
    with pytest.raises(MachineError, match=r"cannot get the Debian package linux-image-amd64"):
        kernels.kernel("vanilla")
    assert not kernels.is_unpacked("linux-image-amd64")


VANILLA = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 (2025-05-22)"
REALTIME = "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)"


def machine(root: Path, version: str = VANILLA) -> Path:
    for path, text in {
        "proc/sys/kernel/osrelease": "6.1.0-37-amd64",
        "proc/sys/kernel/version": version,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


def refusal(wanted: str, root: Path) -> str:
    with pytest.raises(MachineError) as caught:
        check_host_kernel(wanted, root)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_vanilla_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert check_host_kernel("vanilla", root) == {
        "kind": "vanilla",
        "release": "6.1.0-37-amd64",
        "version": VANILLA,
        "realtime": False,
    }
    assert refusal("rt", root) == (
        "dut.kernel: this machine runs 6.1.0-37-amd64 (vanilla), not a real-time kernel: boot one, "
        "such as that of the Debian package linux-image-rt-amd64, or take dut.platform: vm, which "
        "brings its own"
    )


def test_a_real_time_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path, REALTIME)
    assert check_host_kernel("rt", root)["realtime"] is True
    assert refusal("vanilla", root).endswith("not a vanilla one: boot one without PREEMPT_RT")


def test_real_time_is_also_told_by_sysfs(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/kernel").mkdir(parents=True)
    (root / "sys/kernel/realtime").write_text("1\n")
    assert check_host_kernel("rt", root)["kind"] == "rt"


def test_a_tuning_is_no_kernel() -> None:
    assert check_kernel("vanilla") == "vanilla"
    with pytest.raises(ValueError, match=r"write dut\.boot: 'nohz_full=\{cpus\} rcu_nocbs"):
        check_kernel("nohz")


def test_versions_and_beginnings_of_them(tmp_path: Path) -> None:
    root = machine(tmp_path)
    for wanted in ("6.1.0-37-amd64", "6.1.0", "6.1", "6"):
        check_host_kernel(wanted, root)
    assert refusal("6.1.0-3", root) == (
        "dut.kernel: this machine runs 6.1.0-37-amd64 (vanilla), not 6.1.0-3: boot that one, or "
        "take dut.platform: vm, which brings its own"
    )


def test_images(tmp_path: Path) -> None:
    root = machine(tmp_path)
    image = bytearray(0x400)
    image[0x202:0x206] = b"HdrS"
    image[0x20E:0x210] = (0x300 - 0x200).to_bytes(2, "little")
    for name, release in (("same", b"6.1.0-37-amd64"), ("other", b"6.12.1")):
        image[0x300:0x340] = (release + b" (someone@somewhere) #1 SMP").ljust(0x40, b"\0")
        (root / name).write_bytes(image)
    check_host_kernel("/same", root)
    assert "not 6.12.1: boot that one" in refusal("/other", root)
    (root / "text").write_text("no image")
    assert refusal("/text", root) == "dut.kernel: /text is no kernel image"
    assert refusal("/none", root) == "dut.kernel: cannot read /none: No such file or directory"

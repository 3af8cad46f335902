"""Kernels by their Debian packages, which apt gets from a small archive of its own.

The names, versions and dependencies are those of Debian's lists of packages, and so is where the
packages have their files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tailtap.base.errors import MachineError
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

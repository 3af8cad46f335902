"""A published site is repeated in a clean container: Debian, its Python, and the wheel alone."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sites import write_site
from wheels import build, constraints, run

SUITE, PYTHON = "bookworm", "3.11"
IMAGE = "localhost/tt-test-clean"
FILE = f"""\
FROM scratch
ADD root.tar /
COPY wheels /wheels
RUN python{PYTHON} -m venv /tailtap && \\
    /tailtap/bin/pip install --quiet --no-index --find-links /wheels tailtap
ENTRYPOINT ["/tailtap/bin/tailtap"]
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3_000),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a root folder, and containers"),
    pytest.mark.skipif(
        not (shutil.which("mmdebstrap") and shutil.which("podman")),
        reason="Debian packages mmdebstrap and podman",
    ),
]


def context(folder: Path) -> Path:
    """What the image is made of: a root folder, the wheel, and those that it depends on."""
    [wheel] = build("wheel-here", folder / "dist")
    run(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:",
        "--python-version", PYTHON, "--dest", folder / "wheels",
        "--constraint", constraints(folder), wheel)  # fmt: skip
    shutil.copy(wheel, folder / "wheels")
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-venv,iproute2,ethtool",
        SUITE, folder / "root.tar")  # fmt: skip
    (folder / "Containerfile").write_text(FILE)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """In a storage of its own."""
    folder = tmp_path_factory.mktemp("clean")
    storage = folder / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "/run/tt-test-clean"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
        made = context(folder)
        run("podman", "build", "--isolation", "chroot", "--no-cache",
            "--tag", IMAGE, made)  # fmt: skip
        yield IMAGE
        run("podman", "system", "reset", "--force")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_site(tmp_path_factory.mktemp("published"))
    return made.rename(made.with_name("moved"))


def repeat(image: str, site: Path, *words: str) -> tuple[int, Any]:
    """Its status and answer, in a container without a network that can write nowhere but /tmp."""
    # Podman asks for more than root has in a container.
    numbers = int(Path("/proc/sys/kernel/pid_max").read_text())
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = min(numbers, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    command = ["podman", "--runtime", "runc", "run", "--rm", "--network", "none", "--read-only",
               "--tmpfs", "/tmp", "--cgroups", "no-conmon", "--pids-limit", "-1",
               "--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}",
               "--volume", f"{site}:/site:ro",
               image, "reproduce", "/site", "--json", "--quiet", *words]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode in (0, 1, 5), done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def test_it_needs_nothing_but_the_wheel(image: str, site: Path, tmp_path: Path) -> None:
    status, found = repeat(image, site)
    steps = [(step["level"], step["answer"]) for step in found["steps"]]
    assert steps == [(name, "reproduced") for name in ("checksums", "captures", "figures")]
    assert (status, found["answer"]) == (0, "reproduced")
    assert {claim["answer"] for claim in found["claims"]} == {"reproduced"}
    changed = Path(shutil.copytree(site, tmp_path / "changed"))
    name = "runs/001-bare-metal-r1/egress.stamps"
    content = bytearray((changed / name).read_bytes())
    content[-1] ^= 1
    (changed / name).write_bytes(content)
    status, found = repeat(image, changed, "--level", "captures")
    assert (status, found["answer"]) == (1, "contradicted")
    assert [finding["what"] for step in found["steps"] for finding in step["findings"]] == [
        name
    ] * 2

"""DuTs from the user's own files: an image of Podman's storage, archives of one, a folder.

The image has one static program and nothing else: no shell, and no tool that tailtap could use.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from labtools import Ran, all_came, counts_of, measured, own_machine, ran, write_experiment
from program import in_process

from tailtap.base.errors import InputError
from tailtap.host.containers.podman import account_of
from tailtap.lab.platforms import roots

SUPPORT = Path(__file__).parents[1] / "support"
NAME = "localhost/tt-test-image"
EXPERIMENT = """\
name: own-image
dut: {{platform: crun, forwarder: external, cpus: [1], {files}}}
traffic: {{rate: 1 kpkt/s, duration: 200 ms, warm_up: 0 s, cpu: 0}}
vary: {{{vary}}}
"""
FILE = """\
FROM scratch
COPY program /bin/program
COPY passwd /etc/passwd
ENV COLOUR=blue
USER somebody
ENTRYPOINT ["program"]
CMD ["forward"]
"""


@dataclass(frozen=True)
class Built:
    """An image in a storage of its own, its archives, and its files as a folder."""

    folder: Path
    number: str

    def archive(self, form: str) -> str:
        return f"{form}:{self.folder / form}.tar"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("image")
    storage = folder / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "/run/tt-test-image"\n'
    )
    context = folder / "context"
    (context / "bin").mkdir(parents=True)
    subprocess.run(
        ["gcc", "-static", "-O2", "-o", context / "bin/program", SUPPORT / "image/program.c"],
        check=True,
    )
    (context / "program").hardlink_to(context / "bin/program")
    (context / "passwd").write_text("root:x:0:0::/:\nsomebody:x:1234:77::/:\n")
    (context / "Containerfile").write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
        build = ("build", "--isolation", "chroot", "--no-cache")
        podman(*build, "--tag", f"{NAME}:1", str(context))
        podman(*build, "--arch", "arm64", "--tag", f"{NAME}:arm", str(context))
        number = podman("image", "inspect", "--format", "{{.Id}}", f"{NAME}:1").strip()
        for form in ("oci-archive", "docker-archive"):
            podman("save", "--format", form, "--output", str(folder / f"{form}.tar"), f"{NAME}:1")
        yield Built(folder, f"sha256:{number}")
    subprocess.run(["rm", "-rf", "/run/tt-test-image", *roots.CACHE.glob("draft.*")], check=True)


def podman(*words: str) -> str:
    done = subprocess.run(["podman", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(folder: Path, files: str, vary: str = "") -> Ran:
    """Runs that were made; nothing of them stays."""
    with own_machine() as machine:
        found = measured(folder, EXPERIMENT.format(files=files, vary=vary), machine=machine)
        assert machine.tailtap("clean").stdout == "nothing to remove\n"
    assert all(all_came(run, 200) for run in found.runs)
    return found


def refused(folder: Path, files: str, *options: str) -> str:
    path = write_experiment(folder, EXPERIMENT.format(files=files, vary=""))
    done = in_process("run", path, "--check", *options)
    assert done.returncode in (2, 3), done.stdout
    return done.stderr.splitlines()[-1]


def test_an_image_forwards_with_its_own_command_as_its_own_user(
    built: Built, tmp_path: Path
) -> None:
    found = made(tmp_path, f"image: '{NAME}:1'", "dut.platform: [runc, podman]")
    for told, run in zip(found.records, found.runs, strict=True):
        image = told["platform"]["image"]
        assert (image["id"], image["architecture"]) == (built.number, "amd64")
        assert image["digest"].startswith("sha256:")
        assert "environment" not in image
        assert told["platform"]["root"] == "image"
        assert told["forwarder"]["command"] == ["program", "forward"]
        # Somebody without rights keeps the capabilities that forwarding needs.
        assert (run / "forwarder.log").read_text() == "uid 1234, colour blue\n"


def test_lxc_says_before_a_run_whose_commands_it_cannot_be(built: Built, tmp_path: Path) -> None:
    said = refused(tmp_path, f"image: '{NAME}:1'", "--set", "dut.platform=container")
    assert "its commands are user 1234's and start in /, which LXC cannot do" in said


@pytest.mark.parametrize(
    "form", ["oci-archive", pytest.param("docker-archive", marks=pytest.mark.slow)]
)
def test_an_archive_is_unpacked_once(built: Built, tmp_path: Path, form: str) -> None:
    files = (
        f"image: '{built.archive(form)}', options: {{arguments: 'forward {{ingress}} {{egress}}'}}"
    )
    told = made(tmp_path, files).record
    assert told["platform"]["image"]["id"] == built.number
    assert told["forwarder"]["command"] == ["program", "forward", "tt-in", "tt-out"]
    kept = [path.name for path in roots.CACHE.iterdir()]
    again = tmp_path / "again"
    again.mkdir()
    made(again, files)
    assert [path.name for path in roots.CACHE.iterdir()] == kept


def test_a_folder_forwards_under_every_engine_and_is_not_written(
    built: Built, tmp_path: Path
) -> None:
    root = built.folder / "context"
    before = sorted(root.rglob("*"))
    files = f"root: {root}, options: {{command: '/bin/program forward {{ingress}} {{egress}}'}}"
    found = made(tmp_path, files, "dut.platform: [container, crun]")
    assert [told["platform"]["root"] for told in found.records] == [str(root)] * 2
    said = [(run / "forwarder.log").read_text() for run in found.runs]
    assert said == ["uid 0, colour none\n"] * 2
    assert sorted(root.rglob("*")) == before


def test_a_server_of_an_image_answers(built: Built, tmp_path: Path) -> None:
    client = f"{sys.executable} {SUPPORT / 'dns_by_hand.py'} client {{server}} 53 200 1 0"
    text = f"""\
name: own-server
dut:
  platform: crun
  image: '{NAME}:1'
  forwarder: {{server: {{arguments: "answer 53", listens: "udp:53"}}}}
  cpus: [1]
traffic: {{generator: external, external: {{command: "{client}"}}, duration: 1 s}}
evaluation: {{match: transactions}}
"""
    found = measured(tmp_path, text)
    assert counts_of(found.run)["matched"] == 200
    assert found.record["forwarder"]["command"] == ["program", "answer", "53"]


@pytest.mark.parametrize(("files", "why"), [
    ("image: localhost/tt-none:1", "Podman has no image localhost/tt-none:1"),
    (f"image: '{NAME}:arm'", f"{NAME}:arm is for arm64, and this machine is amd64"),
    ("image: 'oci-archive:/none.tar'", "/none.tar: No such file or directory"),
    ("image: 'docker://alpine'", "is no image on this machine"),
    ("image: 'oci-archive:here.tar'", "write the absolute path"),
    ("root: /none, options: {command: /x}", "there is no folder /none"),
    ("root: here, options: {command: /x}", "write host, or the absolute path of a folder"),
    ("root: /srv", "only an image of a container (dut.image) has one of its own"),
    (f"image: '{NAME}:1', root: /srv", "give one"),
    (f"image: '{NAME}:1', options: {{command: a, arguments: b}}", "write all of it as command"),
    (f"image: '{NAME}:1', options: {{command: 'a {{folder}}'}}", "which the image does not see"),
    ("options: {arguments: a, command: b}", "arguments are for the command of an image"),
])  # fmt: skip
def test_what_cannot_be_is_said_before(built: Built, tmp_path: Path, files: str, why: str) -> None:
    assert why in refused(tmp_path, files)


def test_what_is_not_in_the_image_is_said(built: Built, tmp_path: Path) -> None:
    text = EXPERIMENT.format(files=f"image: '{NAME}:1', options: {{command: nginx}}", vary="")
    assert "the program nginx is not in the image" in ran(tmp_path, text).done.stderr


def test_users_are_known_by_the_image_s_own_files(built: Built) -> None:
    root = built.folder / "context"
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("somebody:x:1234:77::/:\n")
    try:
        told = [account_of(user, root) for user in ("", "7", "7:8", "somebody", "somebody:9")]
        assert told == [
            (0, 0), (7, 0), (7, 8), (1234, 77), (1234, 9),
        ]  # fmt: skip
        with pytest.raises(InputError, match="nobody-here is not in its /etc/passwd"):
            account_of("nobody-here", root)
    finally:
        (root / "etc/passwd").unlink()
        (root / "etc").rmdir()

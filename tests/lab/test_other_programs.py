"""Boot loaders and programs that tune hosts take what tailtap writes for them.

The real programs read it. What they would change of this machine's disk goes to mounts of the test.
Those that this machine lacks are borrowed: installing them would change how it boots, as
systemd-boot puts itself on the EFI system partition, and the others bring services.
Their packages are downloaded and unpacked once, as guests' kernels are.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailtap.host.changes.kernel_values import same, writable
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.exports import FORMATS, Content, content
from tailtap.lab.platforms.vm.kernels import unpacked

PROJECT = Path(__file__).resolve().parents[2]
SECONDS = 300
# The project and Python may be on other file systems than /, which the overlay does not show.
ROOT = """
folder=$1 project=$2 python=$3; shift 3
mount -t tmpfs tt-test-borrowed "$folder"
cd "$folder"
mkdir upper work root
for package in "$@"; do
    for part in etc usr; do [ ! -d "$package/$part" ] || cp -a "$package/$part" upper; done
done
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work tt-test-borrowed root
for place in /proc /dev /sys; do mount --rbind $place root$place; done
for place in /boot /run /tmp /var/lib/tailtap; do
    mkdir -p root$place
    mount -t tmpfs tt-test-borrowed root$place
done
# Last: they may be below one of the places that are empty.
for place in "$project" "$python"; do
    mkdir -p "root$place"
    mount --rbind "$place" "root$place"
done
exec chroot root sh -euc "$SCRIPT"
"""


def run_with(folder: Path, packages: Sequence[str], script: str, stdin: str = "") -> str:
    """What `script` says, which reads `stdin`, on this machine's files and those of the packages.

    It may write anywhere but to /dev, /proc and /sys: nothing of that stays. /boot, /run, /tmp and
    tailtap's journals are empty in the beginning. `folder` is an empty one.
    """
    places = [str(folder), str(PROJECT), sys.base_prefix, *(str(unpacked(one)) for one in packages)]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-euc", ROOT, "run", *places],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp",
             "LANG": "C.UTF-8", "SCRIPT": script},
        input=stdin, check=False, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout


GRUB = ("grub-common", "grub2-common")
# The root here is no disk: grub-probe tells of one. The words of a kernel's line are not its work.
WITH_GRUB = r"""
cat > /usr/sbin/grub-probe <<'END'
#!/bin/sh
case "$*" in
    *target=device*) echo /dev/vda1 ;;
    *target=fs_uuid*) echo 0a1b-2c3d ;;
    *target=partuuid*) exit 1 ;;
    *target=fs*) echo ext2 ;;
esac
END
mkdir -p /boot/grub
touch /boot/vmlinuz-6.1.0-1-amd64 /boot/initrd.img-6.1.0-1-amd64
cat > /etc/default/grub <<'END'
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="audit=0"
END
lines() { sed -n 's|^\s*linux\s*/vmlinuz-6.1.0-1-amd64 ||p' /boot/grub/grub.cfg; echo ---; }
"""
INSTALLED = f"""{WITH_GRUB}
update-grub 2> /dev/null; lines
tailtap host bootline --install --quiet --cpus 1 isolated-cpus skew-tick kernel-audit
update-grub 2> /dev/null; lines
tailtap host revert
update-grub 2> /dev/null; lines
"""


def test_grub_gives_the_words_to_its_normal_entries(tmp_path: Path) -> None:
    before, during, after, _ = run_with(tmp_path, GRUB, INSTALLED).split("---\n")
    plain, recovery = "root=/dev/vda1 ro audit=0 quiet", "root=/dev/vda1 ro single audit=0"
    told = [" ".join(line.split()) for line in before.splitlines()]
    assert told == [plain, plain, recovery]
    said, *told = [" ".join(line.split()) for line in during.splitlines()]
    assert said == "wrote /etc/default/grub.d/99-tailtap.cfg: call `update-grub`, then reboot"
    tuned = f"{plain} isolcpus=domain,managed_irq,1 skew_tick=1"  # audit=0 is there already
    assert told == [tuned, tuned, recovery]
    said, *told = [" ".join(line.split()) for line in after.splitlines()]
    assert said == "put back /etc/default/grub.d/99-tailtap.cfg"
    assert told == [plain, plain, recovery]


ENTRIES = r"""
mkdir -p /boot/EFI /boot/loader/entries /boot/1
touch /boot/1/linux
echo 'timeout 3' > /boot/loader/loader.conf
for name in a 0 Arch 5c1f; do
    printf 'title A system\nversion 6.1\nlinux /1/linux\noptions ro quiet\n' \
        > /boot/loader/entries/$name.conf
done
export SYSTEMD_RELAX_ESP_CHECKS=1 LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/systemd
tailtap host bootline --install --quiet --loader systemd-boot --entry a.conf --cpus 1 \
    isolated-cpus skew-tick >&2
bootctl --no-pager --esp-path=/boot --json=short list
"""


def test_systemd_boot_finds_the_entry(tmp_path: Path) -> None:
    told = run_with(tmp_path, ("systemd-boot", "libsystemd-shared"), ENTRIES)
    found = {entry["id"]: entry for entry in map(json.loads, told.splitlines()) if "id" in entry}
    ours, copied = found["_-tailtap.conf"], found["a.conf"]
    assert ours["title"] == "A system (tailtap)"
    assert ours["linux"] == copied["linux"]
    assert ours["options"] == f"{copied['options']} isolcpus=domain,managed_irq,1 skew_tick=1"
    # The first one is booted where loader.conf names no default.
    assert list(found)[-1] == "_-tailtap.conf"
    assert len(found) == 5


LOAD = """
import json, logging, sys
sys.path.insert(0, sys.argv[1])
from tuned.profiles.factory import Factory
from tuned.profiles.loader import Loader
from tuned.profiles.locator import Locator
from tuned.profiles.merger import Merger
from tuned.profiles.variables import Variables
loader = Loader(Locator([sys.argv[2]]), Factory(), Merger(), None, Variables())
units = loader.load(["tailtap"]).units
print(json.dumps({name: [unit.type, dict(unit.options)] for name, unit in units.items()}))
"""


def exported(*names: str) -> Content:
    tree = Tree()
    return content(tree, Purpose.of(tree, "bare-metal", "1", "0", []), names)


def test_tuned_loads_the_profile(tmp_path: Path) -> None:
    """By tuned's own reader."""
    found = exported()
    (tmp_path / "tailtap").mkdir()
    (tmp_path / "tailtap/tuned.conf").write_text(FORMATS["tuned"](found).text)
    modules = unpacked("tuned") / "usr/lib/python3/dist-packages"
    told = subprocess.check_output(
        [sys.executable, "-c", LOAD, str(modules), str(tmp_path)],
        text=True,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS,
    )
    units = json.loads(told)
    files = {path: one.value for one in found.settings for path in one.paths}
    sysctls = {path: value for path, value in files.items() if path.startswith("/proc/sys/")}
    assert units.pop("bootloader") == ["bootloader", {"cmdline_tailtap": found.line}]
    kind, values = units.pop("sysctl")
    assert kind == "sysctl"
    named = {f"/proc/sys/{name.replace('.', '/')}": value for name, value in values.items()}
    assert named == sysctls
    kind, values = units.pop("sysfs")
    assert kind == "sysfs"
    assert values == {path: value for path, value in files.items() if path.startswith("/sys/")}
    assert units == {}


EACH_FORM = ("stat-interval", "transparent-huge-pages", "workqueues", "skew-tick", "isolated-cpus")
"""A number, one of several words, masks in many files, and words of the kernel's line."""


@contextmanager
def put_back(found: Content) -> Iterator[dict[str, str]]:
    """The values of the files that are set, which are as before afterwards."""
    tree = Tree()
    forms = {path: one.form for one in found.settings for pattern in one.paths
             for path in tree.glob(pattern)}  # fmt: skip
    before = {path: tree.text(path) for path in forms}
    try:
        yield before
    finally:
        for path, text in before.items():
            if not same(tree.text(path), text, forms[path]):
                Path(path).write_text(writable(text, forms[path]))
        assert {path: tree.text(path) for path in forms} == before


def not_set(found: Content) -> set[str]:
    tree = Tree()
    return {path for one in found.settings for pattern in one.paths for path in tree.glob(pattern)
            if not same(tree.text(path), one.value, one.form)}  # fmt: skip


PLAYED = f"""{WITH_GRUB}
knobs=$(cat)
cd /tmp
tailtap host export --format ansible --quiet --role bare-metal --cpus 1 --housekeeping 0 \\
    --out tasks.yaml $knobs
cat > play.yaml <<'END'
- hosts: localhost
  connection: local
  gather_facts: false
  tasks: [{{ansible.builtin.import_tasks: tasks.yaml}}]
END
export ANSIBLE_STDOUT_CALLBACK=ansible.builtin.minimal ANSIBLE_LOCALHOST_WARNING=false
ansible-playbook --inventory localhost, --syntax-check play.yaml > /dev/null
for time in first second; do
    ANSIBLE_STDOUT_CALLBACK=ansible.builtin.default ansible-playbook --inventory localhost, \\
        --extra-vars ansible_python_interpreter={sys.executable} play.yaml
    echo ---
done
lines
"""


@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.parametrize(
    "names",
    [EACH_FORM, pytest.param(("timers", "memory", "interrupts", "cpus"), marks=pytest.mark.slow)],
)
def test_ansible_sets_what_differs_and_nothing_the_second_time(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    found = exported(*names)
    with put_back(found) as before:
        assert before
        there = not_set(found)
        assert "/proc/sys/vm/stat_interval" in there
        first, second, lines, _ = run_with(tmp_path, GRUB, PLAYED, " ".join(names)).split("---\n")
        assert not_set(found) == set()
    changed, failed = recap(first)
    assert (recap(second), failed) == ((0, 0), 0)
    assert changed > 2
    normal, again, recovery = (" ".join(line.split()) for line in lines.splitlines())
    assert normal == again == f"root=/dev/vda1 ro audit=0 quiet {found.line}"
    assert found.line.split()[0] not in recovery


def recap(text: str) -> tuple[int, int]:
    match = re.search(r"localhost\s*: .*changed=(\d+) .*unreachable=0 .*failed=(\d+)", text)
    assert match is not None, text
    return int(match[1]), int(match[2])


TUNED = ("tuned", "python3-dbus", "python3-gi", "python3-pyudev", "python3-linux-procfs",
         "libgirepository-1.0-1", "gir1.2-glib-2.0")  # fmt: skip
# Other files for sysctl are not the profile's, and the system's D-Bus has no tuned.
DAEMON = r"""
knobs=$(cat)
mkdir -p /etc/tuned/tailtap /run/tuned /var/log/tuned
echo 'reapply_sysctl = 0' > /etc/tuned/tuned-main.conf
tailtap host export --format tuned --quiet --role bare-metal --cpus 1 --housekeeping 0 \
    --out /etc/tuned/tailtap/tuned.conf $knobs
files=$(grep --only-matching '^/sys/[^=]*' /etc/tuned/tailtap/tuned.conf)
values() { cat /proc/sys/vm/stat_interval $files; echo ---; }
values
/usr/bin/python3 /usr/sbin/tuned --no-dbus --profile tailtap --log /tmp/log & tuned=$!
for tenth in $(seq 300); do
    ! grep --quiet --no-messages "static tuning from profile 'tailtap' applied" /tmp/log || break
    sleep 0.1
done
values
kill $tuned
wait $tuned || true
values
grep -e WARNING -e ERROR /tmp/log || true
"""


@pytest.mark.slow
@pytest.mark.apart
def test_the_daemon_of_tuned_sets_the_profile_and_puts_it_back(tmp_path: Path) -> None:
    """There is no boot loader that it could give the words of the kernel's line."""
    names = ("stat-interval", "transparent-huge-pages", "workqueues-default")
    found = exported(*names)
    with put_back(found):
        assert not_set(found)
        told = run_with(tmp_path, TUNED, DAEMON, " ".join(names))
    before, during, after, complaints = told.split("---\n")
    assert (before, complaints) == (after, "")
    interval, cpus, pages = during.splitlines()
    assert (interval, int(cpus, 16)) == ("3600", 1)
    assert pages.endswith("[never]")


@pytest.mark.apart
def test_sysctl_loads_the_file(tmp_path: Path) -> None:
    file = tmp_path / "99-tailtap.conf"
    names = ("stat-interval", "hung-task", "compaction", "soft-watchdog")
    export = ["tailtap", "host", "export", "--format", "sysctl", "--quiet", "--cpus", "1"]
    program = Path(sys.executable).with_name(export[0])
    subprocess.run([str(program), *export[1:], "--out", str(file), *names], check=True)
    found = exported(*names)
    with put_back(found):
        assert not_set(found)
        subprocess.run(["sysctl", f"--load={file}"], check=True, stdout=subprocess.DEVNULL)
        assert not_set(found) == set()

"""What doctor says of a folder that others can write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailtap.doctor.programs import check_folder


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o755, ""),
        (0o1777, ""),
        (0o777, "everybody can write there"),
        (0o702, "everybody can write there"),
        (0o770, "the group nogroup can write there"),
    ],
)
def test_who_else_can_write_is_told(tmp_path: Path, mode: int, said: str) -> None:
    results = tmp_path / "results/deep"
    results.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(results.parent, 0, 65534)
    elif "group" in said:
        pytest.skip("only root can give a folder to another group")
    results.parent.chmod(mode)
    [found] = check_folder(results)
    assert found.state == ("poor" if said else "ok") and said in found.found
    assert bool(said) == (f"chmod go-w {results.parent}" in found.remedy)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_owner_is_this_user_or_the_one_before_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 65534, 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    [found] = check_folder(tmp_path)
    assert found.state == "poor" and "it belongs to nobody" in found.found
    monkeypatch.setenv("SUDO_UID", "65534")
    [found] = check_folder(tmp_path)
    assert found.state == "ok"

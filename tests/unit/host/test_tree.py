"""Files of a machine that change while they are looked at."""

from __future__ import annotations

import threading
from pathlib import Path

from tailtap.host.knobs.tree import Tree


def test_a_folder_that_goes_meanwhile_is_not_there(tmp_path: Path) -> None:
    stays = tmp_path / "groups/stays"
    stays.mkdir(parents=True)
    (stays / "cpus").write_text("1\n")
    goes = [tmp_path / f"groups/goes{number}" for number in range(8)]
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for path in goes:
                path.mkdir()
            for path in goes:
                path.rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(500):
            assert Tree(tmp_path).glob("/groups/**/cpus") == ["/groups/stays/cpus"]
    finally:
        done.set()
        other.join()

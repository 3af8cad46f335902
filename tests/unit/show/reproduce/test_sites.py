"""Sites repeated: what is found again, and that every change of what was published is."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sites import write_site

from tailtap.base.errors import InputError, MachineError
from tailtap.records.record import read
from tailtap.records.site import SUMS, Level, RepeatedStep, ReproductionRecord, SiteRecord
from tailtap.show.publish import Options, publish
from tailtap.show.reproduce import Asked, Measure, add_claims, fetching, reproduce
from tailtap.show.reproduce.captures import evaluate_captures, same_numbers
from tailtap.show.reproduce.drawing import differing_tables, same_marks
from tailtap.show.reproduce.fetching import at, fetch, fetch_file
from tailtap.show.reproduce.steps import check_sums, parse_sums

RUN = "runs/001-bare-metal-r1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("published"))


@pytest.fixture
def copy(site: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(site, tmp_path / "moved"))


def record(site: Path) -> SiteRecord:
    return read(site / "site.json", SiteRecord)


def told(step: RepeatedStep) -> dict[str, str]:
    return {one.what: one.reason for one in step.findings}


def flip(file: Path, place: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_a_site_is_found_again_wherever_it_lies(site: Path, copy: Path) -> None:
    """Here the runs that it was made of stand for those of another machine."""
    before = sorted(path.relative_to(copy) for path in copy.rglob("*"))
    experiment = site.parent / "experiment"
    found = reproduce(copy, "moved", Asked("small"), lambda _: experiment)
    assert [(step.level, step.answer, step.findings) for step in found.steps] == [
        (level, "reproduced", []) for level in ("checksums", "captures", "figures", "small")
    ]
    assert found.steps[1].checked == 6 and found.steps[2].checked > 10
    assert [(one.id, one.answer, one.published.answer) for one in found.claims] == [
        ("later", "reproduced", "held"),
        ("quick", "reproduced", "held"),
    ]
    assert [one.here and one.here.answer for one in found.claims] == ["held", "held"]
    assert (found.answer, found.kind, found.name) == ("reproduced", "site", "experiment")
    assert (found.folder, found.differences) == (str(experiment), [])
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    [f"{RUN}/egress.stamps", f"{RUN}/evaluation/distribution.parquet", "tables/runs.parquet",
     "experiment.yaml", "index.html", "figures/hdr.svg", "ro-crate-metadata.json"],
)  # fmt: skip
def test_a_changed_byte_is_found(copy: Path, name: str) -> None:
    flip(copy / name)
    step = check_sums(copy, {})
    assert step.answer == "contradicted" and told(step) == {
        name: "it was changed: its checksum is another"
    }


def test_what_is_missing_or_added_is_named(copy: Path) -> None:
    (copy / "index.html").unlink()
    (copy / "more.txt").write_text("more")
    (copy / "redrawn").mkdir()
    (copy / "redrawn/index.html").write_text("what the site says to type writes this")
    (copy / "README.md").unlink()
    (copy / "README.md").symlink_to("/etc/hostname")
    found = told(check_sums(copy, {}))
    assert found.pop("index.html") == "it is missing"
    assert found.pop("more.txt") == "it was added: no checksum is published of it"
    assert "a link to a place outside" in found.pop("README.md") and not found
    (copy / SUMS).unlink()
    assert check_sums(copy, {}).answer == "not shown"


def resum(site: Path, name: str) -> None:
    """Give a changed file the checksum that it has now, as whoever changes results would."""
    sums = parse_sums((site / SUMS).read_text())
    sums[name] = sha256((site / name).read_bytes()).hexdigest()
    (site / SUMS).write_text("".join(f"{one}  {path}\n" for path, one in sums.items()))


def test_the_crate_knows_checksums_as_well(copy: Path) -> None:
    flip(copy / "experiment.yaml")
    resum(copy, "experiment.yaml")
    assert "the crate has another checksum" in told(check_sums(copy, {}))["experiment.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("abc  file", "line 1 is no"),
        (f"{'0' * 64}  ../x", "outside"),
        (f"{'0' * 64}  /etc/x", "outside"),
        (f"{'0' * 64}  a\n{'1' * 64}  a\n", "line 2 names a again"),
    ],
)
def test_lines_that_are_no_checksums(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_sums(text)


def test_captures(copy: Path, tmp_path: Path) -> None:
    """One that is elsewhere, one that is not here, another one, and numbers that are not its."""
    step = partial(evaluate_captures, copy, record(copy))
    moved = tmp_path / "archive" / Path(RUN).name
    moved.mkdir(parents=True)
    (copy / RUN / "egress.stamps").rename(moved / "egress.stamps")
    found = step(None)
    assert found.answer == "not shown" and "captures DIR" in told(found)[f"{RUN}/egress.stamps"]
    assert step(moved.parent).findings == []
    flip(moved / "egress.stamps")
    found = step(moved.parent)
    assert found.answer == "contradicted"
    assert told(found) == {f"{RUN}/egress.stamps": "this capture is another: its checksum differs"}
    flip(moved / "egress.stamps")
    file = copy / RUN / "evaluation/distribution.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(0, table.num_rows - 1), file)
    found = step(moved.parent)
    assert told(found) == {Path(RUN).name: "evaluated again, it has another distribution"}


def test_captures_of_a_web_server(site: Path, tmp_path: Path) -> None:
    """Fetched where that is asked for, as far as there is room, and used if they are the same."""
    archive = Path(shutil.copytree(site.parent / "experiment", tmp_path / "archive"))
    published, capture = tmp_path / "without", archive / RUN / "egress.stamps"
    with serving(archive) as address:
        publish(archive, published, Options(embed=False, url=address))
        said, before = record(published), sorted(published.rglob("*"))
        every = sum(one.bytes for one in said.captures)
        fetched = partial(evaluate_captures, published, said, None)
        found = fetched()
        assert found.answer == "not shown" and len(found.findings) == 6
        assert "has it (" in found.findings[0].reason
        assert fetched(most=every).findings == []
        # Room for five runs and a half.
        assert len(fetched(most=every * 11 // 12).findings) == 1
        with capture.open("ab") as file:
            file.write(b"more")
        found = fetched(most=every)
        assert "larger than what was published" in told(found)[f"{RUN}/egress.stamps"]
        capture.unlink()
        found = fetched(most=every)
        assert found.answer == "not shown"
        assert "there is none" in told(found)[f"{RUN}/egress.stamps"]
    assert sorted(published.rglob("*")) == before


def test_addresses_that_are_fetched(tmp_path: Path) -> None:
    """Those of web servers: a site that names a file does not mean one of this machine."""
    (tmp_path / "a file").write_bytes(b"content")
    into = tmp_path / "into"
    into.mkdir()
    with serving(tmp_path) as address:
        fetch_file(f"{address}/a%20file", into / "file", into, 7)
        with pytest.raises(InputError, match="larger"):
            fetch_file(f"{address}/a%20file", into / "other", into, 6)
    assert (into / "file").read_bytes() == b"content"
    for url, said in (
        (f"file://{tmp_path}/a%20file", "only http and https"),
        ("ftp://127.0.0.1/x", "only http and https"),
        ("http://127.0.0.1:1/x", "refused"),
    ):
        with pytest.raises(InputError, match=said):
            fetch_file(url, into / "other", into, 6)
    assert [path.name for path in into.iterdir()] == ["file"]


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers each request by what a function writes."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listening.accept()[0] as one:
                        one.recv(4096)
                        answer(one)

        thread = threading.Thread(target=serve)
        thread.start()
        stack.callback(thread.join)
        stack.callback(listening.shutdown, socket.SHUT_RDWR)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_leads_to_no_other(site: Path) -> None:
    with serving(site) as other:

        def lead(one: socket.socket) -> None:
            one.sendall(f"HTTP/1.0 302 x\r\nLocation: {other}/SHA256SUMS\r\n\r\n".encode())

        with (
            answering(lead) as address,
            pytest.raises(InputError, match="leads to another server"),
            at(address),
        ):
            raise AssertionError("it was fetched")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.0 200 OK\r\nContent-Length: 9000\r\n\r\n"])
def test_a_slow_server_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """Each byte comes in time, and the whole never."""
    monkeypatch.setattr(fetching, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(fetching, "FILE_SECONDS", 0.0)

    def trickle(one: socket.socket) -> None:
        one.sendall(head)
        with contextlib.suppress(OSError):
            while True:
                one.sendall(b"a")
                time.sleep(0.01)

    with answering(trickle) as address, pytest.raises(InputError, match="too slow"), at(address):
        raise AssertionError("it was fetched")


def test_a_site_of_very_many_files_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_FILES", 2)
    (tmp_path / SUMS).write_text("".join(f"{'0' * 64}  {number}\n" for number in range(3)))
    with serving(tmp_path) as url, pytest.raises(InputError, match="has 3 files; 2"), at(url):
        raise AssertionError("it was fetched")


@pytest.mark.parametrize("kind", ["link", "pipe", "zero"])
def test_records_of_a_site_are_its_own_files(copy: Path, kind: str) -> None:
    """What else is copied would hang, fill the disk, or tell what is elsewhere."""
    file = copy / RUN / "run.json"
    content = file.read_bytes()
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    else:
        (copy.parent / "elsewhere.json").write_bytes(content)
        file.symlink_to(copy.parent / "elsewhere.json")
    found = told(evaluate_captures(copy, record(copy), None))
    assert any("no regular file" in why or "outside" in why for why in found.values()), found


def test_whole_numbers_may_have_another_width() -> None:
    narrow, wide = (
        pa.table({"repeat": pa.array([1, 2], kind)}) for kind in (pa.int32(), pa.int64())
    )
    assert same_numbers(narrow, wide) and same_numbers(wide, narrow)
    assert not same_numbers(narrow, pa.table({"repeat": pa.array([1, 3], pa.int64())}))
    assert not same_numbers(narrow, pa.table({"repeat": pa.array([1.0, 2.0])}))


def test_figures_and_tables(site: Path, copy: Path) -> None:
    """Numbers that the runs do not give."""
    name = "tables/runs.parquet"
    table = pq.read_table(copy / name)
    pq.write_table(table.slice(0, table.num_rows - 1), copy / name)
    (found,) = differing_tables(copy, record(copy))
    assert (found.what, found.reason) == (name, "made again, it has other rows")
    drawn = pq.read_table(site / "figures/hdr.parquet")
    assert same_marks(drawn, drawn) and not same_marks(drawn, drawn.slice(1))
    for factor, same in ((1 + 1e-12, True), (1 + 1e-6, False)):
        moved = pa.array(drawn["y"].to_numpy() * factor)
        assert same_marks(drawn, drawn.set_column(5, drawn.schema.field("y"), moved)) == same


def claims(site: Path, measure: Measure | None, level: Level = "small") -> ReproductionRecord:
    """What is said of the claims of a site alone."""
    steps = [check_sums(site, {})]
    found = ReproductionRecord(place="", kind="site", name="", answer="not shown", steps=steps)
    add_claims(site, record(site), found, Asked(level), measure, lambda _: None)
    return found


def test_what_this_machine_cannot_measure_is_not_shown(copy: Path) -> None:
    def none(_: Path) -> Path:
        raise MachineError("there is no CPU 9")

    found = claims(copy, none)
    assert [one.answer for one in found.claims] == ["not shown", "not shown"]
    assert "there is no CPU 9" in found.claims[0].reason
    assert found.steps[-1].answer == "not shown"


def test_a_site_that_was_changed_is_not_measured(copy: Path) -> None:
    def never(_: Path) -> Path:
        raise AssertionError

    with (copy / "experiment.yaml").open("a") as file:
        file.write("# more\n")
    found = claims(copy, never)
    assert found.steps[0].answer == "contradicted" and found.steps[-1].answer == "not shown"
    assert "not as it was published" in found.claims[0].reason


def test_a_claim_that_the_published_runs_do_not_show(copy: Path) -> None:
    """One that is false, and one whose published answer was made better than it is."""
    text = (copy / "experiment.yaml").read_text()
    (copy / "experiment.yaml").write_text(text.replace("p99 < 10 ms", "p99 < 1 us"))
    found = claims(copy, None, "figures")
    assert [one.answer for one in found.claims] == ["reproduced", "contradicted"]
    assert "another claim of this name" in found.claims[1].reason
    content = json.loads((copy / "site.json").read_text())
    content["claims"][1]["test"] = found.claims[1].test
    (copy / "site.json").write_text(json.dumps(content))
    found = claims(copy, None, "figures")
    assert found.claims[1].answer == "contradicted"
    assert "published as held, and the published runs say: contradicted" in found.claims[1].reason
    content["claims"][1]["answer"] = "contradicted"
    (copy / "site.json").write_text(json.dumps(content))
    assert claims(copy, None, "figures").claims[1].answer == "contradicted"


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A web server of a folder, on loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_site_of_a_web_server(copy: Path) -> None:
    with serving(copy) as served:
        with at(f"{served}/index.html") as folder:
            assert check_sums(folder, {}).answer == "reproduced"
            assert len(list(folder.rglob("*"))) == len(list(copy.rglob("*")))
        assert not folder.exists()
        flip(copy / "index.html")
        (copy / "README.md").unlink()
        with at(served) as folder:
            assert set(told(check_sums(folder, {}))) == {"README.md", "index.html"}
        (copy / SUMS).write_text(f"{'0' * 64}  ../../up\n")
        with pytest.raises(InputError, match="line 1 is about a file outside"), at(served):
            raise AssertionError("it was fetched")
        with pytest.raises(InputError, match="there is none: give the address of a site"):
            fetch(f"{served}/runs", copy)

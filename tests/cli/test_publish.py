"""`tailtap publish`: nothing that identifies leaves, and others can use what does."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import requests
import rocrate
import yaml
from forms import fits
from identities import PLANTED, write_planted
from program import answer, in_process, one_line_error, tailtap
from read_pages import steps
from rocrate_validator import models, services
from rocrate_validator.utils.http import HttpRequester
from urllib3 import HTTPResponse

from tailtap.analysis.runs.reader import read_runs
from tailtap.base.errors import InputError, PackageMissing
from tailtap.records.record import as_json, read
from tailtap.records.site import SiteRecord
from tailtap.show.publish import publish
from tests.simulation.folders import everything

AUTHOR = "Ada Lovelace <0000-0002-1825-0097> (Analytical Society)"
PAGE = Path(__file__).parents[2] / "docs/howto/publish.md"
VALUES = [value for values in PLANTED.values() for value in values]
PACKED = re.compile(rb"[A-Za-z0-9+/=]{400,}")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("publish") / "measured")


@pytest.fixture(scope="module")
def typed() -> tuple[list[str], list[str]]:
    """The two commands of the page: what would leave, and the site."""
    check, make = (shlex.split(step.command) for step in steps(PAGE.read_text()))
    return check, make


@pytest.fixture(scope="module")
def site(experiment: Path, typed: tuple[list[str], list[str]]) -> Path:
    out = experiment.parent / "site"
    names = {"results": str(experiment), "site": str(out)}
    done = tailtap(*[names.get(word, word) for word in typed[1][1:]], timeout=250)
    assert done.returncode == 0, done.stderr
    assert "host names" in done.stdout and "notes.bin" in done.stdout
    assert not any(value in done.stdout + done.stderr for value in VALUES)
    return out


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and those of what is packed in it."""
    content = path.read_bytes()
    yield content
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        yield repr([*table.to_pylist(), table.schema.metadata]).encode()
    if path.suffix == ".html":
        for packed in PACKED.findall(content):
            found = base64.b64decode(packed)
            yield gzip.decompress(found) if found[:2] == b"\x1f\x8b" else found


def found_in(site: Path, values: list[str]) -> list[tuple[str, str]]:
    """Which values stand in which files, in their names or contents."""
    found = []
    for path in site.rglob("*"):
        texts = [str(path.relative_to(site)).encode(), *(contents(path) if path.is_file() else ())]
        found += [
            (value, path.name)
            for value in values
            if any(value.lower().encode() in text.lower() for text in texts)
        ]
    return found


def test_nothing_that_identifies_leaves(experiment: Path, site: Path) -> None:
    planted = {value for value, _ in found_in(experiment, VALUES)}
    assert planted == set(VALUES)
    assert found_in(site, [*VALUES, str(experiment.parent)]) == []


def test_the_same_value_has_the_same_name_everywhere(site: Path) -> None:
    runs = [json.loads(path.read_text()) for path in sorted(site.glob("runs/*/run.json"))]
    [name] = {run["environment"]["hostname"] for run in runs[:2]}
    log = (site / "runs" / runs[0]["slug"] / "forwarder.log").read_text()
    assert f"on {name}," in log and f"by {name}" in log
    mac = runs[0]["platform"]["cards"]["tt-in"]["mac"]
    assert f"port {mac} and " in log and mac.startswith("02:")
    assert "version 22.11.4.1" in log
    assert runs[0]["environment"]["nics"][0]["firmware"] == "9.30.0.1"
    flows = pq.read_table(site / "runs" / runs[0]["slug"] / "evaluation/losses.parquet")
    [address] = {flow.split("> ")[1].split(":")[0] for flow in flows.column("flow").to_pylist()}
    assert f", {address}, [2001:db8::1]" in log
    assert "10.0.0.1" in flows.column("flow").to_pylist()[0]  # the experiment's own packets
    assert yaml.safe_load((site / "testbed.yaml").read_text())["roles"]["dut"] == name


def test_what_was_replaced_is_counted_and_never_named(site: Path) -> None:
    record = read(site / "site.json", SiteRecord)
    fits(json.loads((site / "site.json").read_text()))
    assert {row.kind for row in record.redacted} == set(PLANTED)
    assert {row.kind: row.values for row in record.redacted}["macs"] == 3
    assert list(record.left_out) == [
        f"runs/{run.slug}/{name}" for run in record.runs[:2] for name in ("notes.bin", "tail.png")
    ]


def test_a_site_is_an_experiment_with_checksums(experiment: Path, site: Path) -> None:
    before, after = read_runs(experiment), read_runs(site)
    assert [run.percentile(0.99) for run in after.runs] == [
        run.percentile(0.99) for run in before.runs
    ]
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"],
        cwd=site,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
    listed = {line.split("  ")[1] for line in (site / "SHA256SUMS").read_text().splitlines()}
    assert listed == set(everything(site)) - {"SHA256SUMS"}
    record = read(site / "site.json", SiteRecord)
    first = experiment / record.captures[0].path
    assert record.captures[0].sha256 == hashlib.sha256(first.read_bytes()).hexdigest()
    assert not (site / record.captures[0].path).exists()
    hdr = next(figure for figure in record.figures if figure.name == "hdr")
    drawn = pq.read_table(site / hdr.data[1]).to_pylist()
    slowest = max(run.maximum or 0 for run in after.runs)
    assert max(row["y"] for row in drawn if row["mark"] == "line") == slowest
    assert "figures/table-1.csv" in record.tables
    asked = next(figure for figure in record.figures if figure.name == "figure-1")
    assert asked.title == "Both rates"
    assert {row["series"] for row in pq.read_table(site / asked.data[1]).to_pylist()} == {
        "10 kpkt/s",
        "50 kpkt/s",
    }
    citation = yaml.safe_load((site / "CITATION.cff").read_text())
    assert citation["authors"][0]["family-names"] == "Lovelace"


def test_the_same_runs_make_the_same_bytes_elsewhere(experiment: Path, site: Path) -> None:
    moved = experiment.parent / "elsewhere/other"
    shutil.copytree(experiment, moved)
    again = tailtap(
        "publish", moved, "--license", "CC-BY-4.0", "--author", AUTHOR, "--quiet", timeout=250
    )
    assert again.stdout == f"{moved}/site\n", again.stderr
    one, other = everything(site), everything(moved / "site")
    assert [name for name in one if one[name] != other.get(name)] == []
    assert one.keys() == other.keys()


def test_the_library_that_is_missing_is_named_at_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr("tailtap.show.publish.crate.find_spec", lambda name: None)
    with pytest.raises(PackageMissing, match=r"rocrate.*tailtap\[publish\]"):
        publish(tmp_path / "none", progress=said.append)
    with pytest.raises(InputError, match="no such folder"):
        publish(tmp_path / "none", check=True, progress=said.append)
    assert "nothing can be published yet" in said[0]


def test_a_folder_of_somebody_else_stays(experiment: Path, site: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    before = {path.name for path in experiment.parent.iterdir()}
    assert "no site" in one_line_error(in_process("publish", experiment, "--out", tmp_path), 2)
    assert everything(tmp_path) == {"mine.txt": b"mine"}
    assert {path.name for path in experiment.parent.iterdir()} == before


def test_a_check_leaves_nothing_behind(
    experiment: Path, site: Path, typed: tuple[list[str], list[str]]
) -> None:
    before = everything(experiment.parent)
    words = [str(experiment) if word == "results" else word for word in typed[0][1:]]
    told = answer(*words)
    assert told["folder"] is None and everything(experiment.parent) == before
    whole = read(site / "site.json", SiteRecord)
    assert told["site"]["redacted"] == [as_json(row) for row in whole.redacted]
    assert set(told["files"]) < set(everything(site))


def offline(folder: Path) -> str:
    """A cache of the validator with the context that the library for crates has in it."""
    cache = str(folder / "cache")
    content = (Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_bytes()
    address = "https://w3id.org/ro/crate/1.1/context"
    headers = {"Content-Type": "application/ld+json"}
    response: Any = requests.Response()
    response._content, response.status_code, response.url = content, 200, address
    response.headers.update(headers)
    response.request = requests.Request("GET", address).prepare()
    response.raw = HTTPResponse(
        io.BytesIO(content), headers, 200, preload_content=False, request_url=address
    )
    HttpRequester.initialize_cache(cache_path=cache, offline=True).session.cache.save_response(
        response
    )
    return cache


def test_the_crate_is_valid(site: Path, tmp_path: Path) -> None:
    settings = services.ValidationSettings(
        rocrate_uri=str(site),
        profile_identifier="process-run-crate",
        requirement_severity=models.Severity.RECOMMENDED,
        offline=True,
        cache_path=offline(tmp_path),
    )
    result = services.validate(settings)
    # Nobody asks authors for the address of their employer.
    assert [one.message for one in result.get_issues()] == ["The organization SHOULD have a URL."]
    assert len(result.executed_checks) > 90


def test_what_the_crate_holds_is_of_known_kinds_and_has_checksums(site: Path) -> None:
    crate = json.loads((site / "ro-crate-metadata.json").read_text())
    own, graph = crate["@context"][1], crate["@graph"]
    known = json.loads((Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_text())
    kinds = [kind for one in graph for kind in np.atleast_1d(one["@type"])]
    assert set(kinds) <= {*own, *known["@context"]}
    own_files = {"SHA256SUMS", "ro-crate-metadata.json", "ro-crate-preview.html"}
    files = {one["@id"] for one in graph if "sha256" in one}
    assert files == set(everything(site)) - own_files

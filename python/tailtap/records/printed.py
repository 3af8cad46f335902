"""What commands print with ``--json``, where it is no file of theirs."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.machine import Boot
from tailtap.records.record import Anything, Count, Notice, Number, Record, Texts, says


class CheckRow(Record, kw_only=True):
    """What was looked at, and what was found."""

    area: str
    name: str
    state: Annotated[
        Literal["ok", "poor", "missing", "untested"],
        says("`poor` works but harms measurements; `untested` could not be tried"),
    ]
    found: str
    remedy: Annotated[str, says("What mends it; empty when nothing has to be")]
    required: Annotated[bool, says("Whether `tailtap run` needs it")]


class DoctorRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.doctor/1"):
    """``tailtap doctor --json``."""

    can_run: bool
    checks: list[CheckRow]


class CalibrationRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.calibration/1"):
    """``tailtap calibrate --json``: a report that can be filed."""

    tailtap: str
    right: Annotated[bool, says("Whether nothing is poor or missing")]
    checks: list[CheckRow]


class ReportRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.report/1"):
    """``tailtap report --json``."""

    page: str
    bytes: Count
    figures: Texts
    runs: Count
    failed: Count
    imported: Count


class ExportRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.export/1"):
    """``tailtap export --json``."""

    to: str
    runs: Count
    written: Texts
    invalid: Annotated[Texts, says("Invalid runs: few formats have a place for that")]


class ImportedTree(Record, kw_only=True):
    """An experiment that was imported, in the words of its own description."""

    name: str
    folder: str
    kind: str
    runs: Count
    loop_runs: Annotated[Count, says("Runs of its loop, with files or without")]
    variables: Texts
    hosts: Texts
    authors: Texts
    licence: str | None
    identifiers: Texts


class ImportRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.import/1"):
    """``tailtap import --json``."""

    database: str
    runs: Count
    new: Annotated[Count, says("Runs that the database did not have yet")]
    replaced: Annotated[Count, says("Runs of which the files have changed")]
    experiments: list[ImportedTree]
    warnings: list[Notice]


class LeftoverRow(Record, kw_only=True):
    """A change of the machine, or a journal of such changes."""

    kind: str
    name: str
    owner: Annotated[
        Literal["dead", "alive", "kept", "unknown"],
        says("Whether the process that made it still runs, or wanted it to stay"),
    ]
    pid: Count | None


class CleanRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.clean/1"):
    """``tailtap clean --json``."""

    dry_run: bool
    removed: list[LeftoverRow]
    kept: list[LeftoverRow]
    left: Texts


class ProfileRow(Record, kw_only=True):
    """Requirements under one name."""

    requirements: Texts
    source: str
    reading: Annotated[str, says("How the source was read; may be empty")]


class ProfilesRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.profiles/1"):
    """``tailtap verdict --list-profiles --json``."""

    profiles: dict[str, ProfileRow]


class Left(Record, kw_only=True):
    """A knob that stays as it is, and why."""

    name: str
    why: str


class ChangeRow(Record, kw_only=True, rename={"before": "from"}):
    """A knob that is set."""

    name: str
    group: str
    before: str | None
    to: str
    disruptive: bool
    risk: Annotated[Count, says("From 0, harmless, to 3")]


class ApplyRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.apply/1"):
    """``tailtap host apply --json``."""

    dry_run: bool
    changes: list[ChangeRow]
    met: Texts
    left: list[Left]
    partly: Annotated[Texts, says("Knobs of which the kernel lets only a part be changed")]


class HostExportRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.host-export/1"):
    """``tailtap host export --json``."""

    format: str
    out: str | None
    text: str
    left: list[Left]


class RevertRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.revert/1"):
    """``tailtap host revert --json``."""

    dry_run: bool
    undone: Texts
    left: Texts
    ended_by_reboot: Texts


class AuditRow(Record, kw_only=True):
    """What the audit says of a knob."""

    name: str
    group: str
    value: str | None
    wanted: str | None
    answer: Literal["met", "not-met", "not-applicable", "unknown"]
    why: str
    source: str
    settable: Literal["runtime", "boot", "no"]
    disruptive: bool
    risk: Annotated[Count, says("From 0, harmless, to 3")]
    removes: Texts
    recommended: Annotated[bool, says("False of a knob that is there to compare")]
    elsewhere: Annotated[bool, says("Whether something else than tailtap sets it")]

    @property
    def differs(self) -> bool:
        """Whether the value is another than the wish, also of knobs that are only to compare."""
        compared = self.answer == "not-applicable" and self.wanted is not None
        return self.answer == "not-met" or compared


class AuditRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.audit/1"):
    """``tailtap host audit --json``."""

    role: str
    cpus: str
    housekeeping: str
    interfaces: Texts
    rows: list[AuditRow]
    met: bool


class WordRow(Record, kw_only=True):
    """A word of a kernel line."""

    word: str
    knob: str
    state: Annotated[
        Literal["there", "missing", "other"],
        says("Whether the line that runs has it, or another value in its place"),
    ]
    running: str | None
    does: str
    why: str
    source: str
    risk: Annotated[Count, says("From 0, harmless, to 3")]
    removes: Texts


class StepRecord(Record, kw_only=True):
    """What installing a kernel line did, or would do."""

    file: str
    difference: Annotated[str, says("A unified diff; empty when nothing is to do")]
    then: Annotated[str, says("What the user does for the next boot")]


class BootlineRecord(
    Record, kw_only=True, omit_defaults=True, tag_field="schema", tag="tailtap.bootline/1"
):
    """``tailtap host bootline --json``."""

    role: str
    cpus: str
    housekeeping: str
    line: str
    words: list[WordRow]
    left: Annotated[list[Left], says("Knobs that no word sets here")]
    wrong: Texts
    dry_run: bool | None = None
    install: StepRecord | None = None


class UninstalledRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.bootline-removed/1"):
    """``tailtap host bootline --remove --json``."""

    dry_run: bool
    removed: Texts
    left: Texts
    then: Annotated[str, says("What the user does for the next boot")]


class Message(Record, kw_only=True):
    """A sentence."""

    message: str


class CheckedRun(Record, kw_only=True):
    """A planned run, and what was found out about it."""

    number: Count
    slug: str
    variables: Anything
    problems: list[Message]
    notes: list[Message]


class RunCheckRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.check/1"):
    """``tailtap run --check --json``."""

    name: str
    differs: Texts
    can_run: bool
    as_root: Annotated[bool, says("Whether root asked, who can ask everything")]
    runs: list[CheckedRun]
    problems: list[Message]
    notes: list[Message]
    traffic_seconds: Annotated[Number, says("How long packets are sent, all runs together")]
    boots: Annotated[Count, says("How often the testbed boots the DuT's host for them")]
    stamp_bytes: Count
    room_bytes: Annotated[Count, says("How much of that there is at once, at most")]
    free_bytes: Annotated[Count, says("How much room there is for it")]


class HostRow(Record, kw_only=True):
    """A host of a testbed."""

    name: str
    kernel: str | None
    said: str


Answer = Literal["ok", "dead", "wrong", "unknown"]


class CableRow(Record, kw_only=True):
    """A cable of a testbed."""

    ends: Texts
    splitter: str | None
    answer: Answer
    said: str


class TestbedCheckRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.testbed-check/1"):
    """``tailtap testbed check --json``."""

    hosts: list[HostRow]
    cables: list[CableRow]
    stamping: Annotated[
        dict[str, str], says("By card behind a splitter, whether it stamps and how")
    ]
    right: Annotated[bool, says("Whether all is as the file says")]


class BootRecord(Boot, kw_only=True, omit_defaults=True, tag_field="schema", tag="tailtap.boot/1"):
    """``tailtap testbed boot --json``."""

    host: str
    via: str | None = None
    seconds: Number | None = None


class ImageRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.image/1"):
    """``tailtap testbed image --json``."""

    folder: str
    release: str
    initrd_bytes: Count


class ImageContentRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.image-content/1"):
    """``image.json``, which lies beside an image."""

    release: str
    suite: str
    packages: Texts
    epoch: Annotated[Count, says("No file in it is newer: seconds since 1970")]


class PowerRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.power/1"):
    """``tailtap testbed power --json``."""

    host: str
    power: str


class CompletionRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.completion/1"):
    """``tailtap completion --json``."""

    shell: Literal["bash", "zsh", "fish"]
    script: str

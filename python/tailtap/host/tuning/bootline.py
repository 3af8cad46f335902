"""The words of the kernel's command line for a purpose, with their reasons, and their file.

Words come from the table's rows alone. A word that the kernel was not built for, or that it said it
does not know, is left out. `tailtap host audit` judges the effect after the next boot.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.base.errors import InputError, MachineError
from tailtap.base.units import ranges
from tailtap.host.changes.journal import Journal
from tailtap.host.knobs import line as lines
from tailtap.host.knobs import select
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable, name_of
from tailtap.host.loaders import LOADERS, MARK, BootFile, Draft, alike, lacking, loader_of
from tailtap.host.tuning.apply import TASK, judge, revert
from tailtap.records.printed import BootlineRecord, Left, StepRecord, UninstalledRecord, WordRow


def bootline(
    tree: Tree, purpose: Purpose, names: Sequence[str] = (), also: Sequence[str] = ()
) -> BootlineRecord:
    """The line for the knobs or groups `names`, all that are recommended by default.

    A knob that is only to compare must be named itself, or be in `also`, which adds to the others.
    Raises `InputError` for an unknown name, and for a named knob that no word sets.
    """
    asked = {*names, *also}
    rows = {knob.name: knob for knob in (*select(names), *(select(also) if also else ()))}
    words: list[WordRow] = []
    left: list[Left] = []
    for knob in rows.values():
        if knob.word is None:
            if knob.name in asked:
                raise InputError(f"{knob.name} is no word of the kernel's command line: leave it")
            continue
        if purpose.role in knob.roles and (knob.recommended or knob.name in asked):
            try:
                text = _word(knob, tree, purpose)
            except (Absent, Unreadable) as reason:
                left.append(Left(name=knob.name, why=str(reason)))
            else:
                words.append(_row(knob, text, _running(tree, text)))
    return BootlineRecord(
        role=purpose.role,
        cpus=ranges(purpose.cpus),
        housekeeping=ranges(purpose.housekeeping),
        line=" ".join(row.word for row in words),
        words=words,
        left=left,
        wrong=_wrong(tree, purpose, words),
    )


def _row(knob: Knob, text: str, running: str | None) -> WordRow:
    return WordRow(
        word=text,
        knob=knob.name,
        state="missing" if running is None else "there" if alike(text, running) else "other",
        running=running,
        does=knob.does,
        why=knob.why,
        source=knob.source,
        risk=knob.risk,
        removes=list(knob.removes),
    )


def _word(knob: Knob, tree: Tree, purpose: Purpose) -> str:
    """The word of a knob. Raises `Absent` or `Unreadable` when it would do nothing here."""
    assert knob.word is not None
    text = knob.word(purpose, tree)
    judged = judge(knob, tree, purpose)
    if judged.answer == "not-applicable" and not judged.differs:
        raise Absent(judged.why)
    if option := lines.not_built(tree, text):
        raise Absent(f"the kernel was built without {option}")
    name = name_of(text)
    if any(name_of(unknown) == name for unknown in lines.told_unknown(tree) or ()):
        raise Absent(f"the kernel said that it does not know {name}")
    return text


def _running(tree: Tree, word: str) -> str | None:
    """The word of the same parameter on the line that runs, the last one."""
    with contextlib.suppress(Absent, Unreadable):
        return next((one for one in reversed(tree.words) if name_of(one) == name_of(word)), None)
    return None


@dataclass(frozen=True)
class _Booted(Tree):
    """The machine as if it had been booted with another line."""

    line: str = ""

    def text(self, path: str) -> str:
        return self.line if path == "/proc/cmdline" else super().text(path)


def _wrong(tree: Tree, purpose: Purpose, words: Sequence[WordRow]) -> list[str]:
    """What the running line gets wrong, and what it would get wrong with the words added."""
    running: list[str] = []
    with contextlib.suppress(Absent, Unreadable):
        running = tree.words
    quoted = (f'"{word}"' if " " in word else word for word in running)
    added = (row.word for row in words if row.state != "there")
    next_boot = _Booted(tree.root, line=" ".join([*quoted, *added]))
    checks = (
        (lines.unknown_words, tree),
        (lines.refused, tree),
        (lines.wrong_lists, next_boot),
        (lines.contradictions, next_boot),
        (lines.wrong_entry, tree),
    )
    found: list[str] = []
    for check, where in checks:
        with contextlib.suppress(Absent, Unreadable):
            found += check(where, purpose)
    return found


def install(
    tree: Tree,
    asked: BootlineRecord,
    *folders: Path,
    loader: str | None = None,
    entry: str | None = None,
    dry_run: bool = False,
) -> StepRecord:
    """Write the line to a file of our own that the boot loader takes words from at the next boot.

    The change is kept in a journal of `folders`: `remove` and `tailtap host revert` undo it, also
    after a reboot. Nothing is changed with `dry_run`. Raises `MachineError` when another file gives
    a parameter another value, when somebody else's file is in the way, or the machine refuses; and
    what `loader_of` raises.
    """
    reasons = [(row.word, f"{row.does} {row.why}") for row in asked.words]
    draft = loader_of(tree, loader).draft(tree, reasons, entry)
    _refuse_others(reasons, draft)
    resource = BootFile(draft.path, draft.text, str(tree.root))
    before = resource.read()["text"]
    if before == draft.text or not lacking(reasons, draft.others):
        return StepRecord(file=draft.path, difference="", then="it has all these words already")
    old = before if draft.base is None else tree.text(draft.base) + "\n"
    step = StepRecord(file=draft.path, difference=_difference(old, draft), then=draft.then)
    if dry_run:
        return step
    journal = Journal.create(*folders, task=TASK)
    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        made = journal.enter(resource)
        stack.callback(journal.undo, made, resource)
        journal.apply(made, resource)
        journal.keep()
        stack.pop_all()
    return step


def remove(tree: Tree, *folders: Path, dry_run: bool = False) -> UninstalledRecord:
    """Undo every `install`. A file that somebody else changed, or that no journal knows, is left.

    Raises what `revert` raises.
    """
    places = {path: loader for loader in LOADERS.values() for path in loader.ours(tree)}
    done = revert(*folders, dry_run=dry_run, kinds=frozenset((BootFile.kind,)))
    removed = list(dict.fromkeys(done.undone))
    told = " ".join(done.left)
    left = [
        f"no journal knows {path}: remove it by hand"
        for path in places
        if path not in removed and path not in told and (tree.look(path) or "").startswith(MARK)
    ]
    then = "".join(places[path].afterwards(tree) for path in removed[:1] if path in places)
    return UninstalledRecord(dry_run=dry_run, removed=removed, left=[*done.left, *left], then=then)


def _refuse_others(words: Sequence[tuple[str, str]], draft: Draft) -> None:
    for word, _ in words:
        for other in draft.others:
            if name_of(word) == name_of(other) and not alike(word, other):
                raise MachineError(
                    f"{other} is in a file that is not tailtap's, and the line should say {word}: "
                    "take it out there, or name the other knobs"
                )


def _difference(old: str | None, draft: Draft) -> str:
    before = [] if old is None else old.splitlines(keepends=True)
    name = draft.base or (draft.path if old is not None else "/dev/null")
    after = draft.text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, name, draft.path))

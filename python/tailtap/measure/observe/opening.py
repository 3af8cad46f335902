"""The folder of an observation, from before anything is looked at until all is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tailtap.analysis.runs.folder import ExperimentFolder, require_folder
from tailtap.base.errors import InputError, Interrupted, Occupied
from tailtap.base.files import make_folder
from tailtap.measure.observe.asked import Asked
from tailtap.measure.observe.look import PACKETS
from tailtap.measure.observe.prepared import Prepared, prepare
from tailtap.measure.runner import interruptible, storage_errors


@contextlib.contextmanager
def opened_for(
    asked: Asked, out: Path, *, packets_alone: bool = False
) -> Iterator[tuple[ExperimentFolder, Prepared]]:
    """The folder `out`, which was empty and is locked meanwhile, and all that is prepared.

    With `packets_alone` there must be two interfaces, and no requests. Raises `InputError` for a
    folder that is in use and for what cannot be observed, `MachineError`, and `Interrupted`.
    """
    folder = ExperimentFolder(out)
    with storage_errors(out):
        require_folder(out, resume=False)
        if any(out.iterdir()):
            raise Occupied("the folder is not empty", place=str(out))
        with folder.locked(), interruptible():
            try:
                prepared = prepare(asked)
            except KeyboardInterrupt:
                raise Interrupted("interrupted before any packet was observed") from None
            if packets_alone and prepared.match != PACKETS:
                raise InputError(
                    "a flight recorder follows packets from one interface to another: name both"
                )
            make_folder(folder.runs, below=out)
            yield folder, prepared

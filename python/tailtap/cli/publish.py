"""`tailtap publish`: make a site that others can read, check and run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap import library
from tailtap.cli.command import PATH, Answer, command
from tailtap.cli.terminal import say, say_whole, steps, warn

if TYPE_CHECKING:
    from tailtap.records.site import PublishRecord


@command(
    computes=True,
    examples=(
        ("tailtap publish results --check", "show what would leave, and what would be replaced"),
        (
            "tailtap publish results --license CC-BY-4.0 --author 'Ada Lovelace' --captures embed",
            "make a site with the stamps in it",
        ),
        ("tailtap publish results --anonymous --out review", "make one for a double-blind review"),
    ),
)
@click.argument(
    "folder",
    type=PATH,
    metavar="DIR",
    help="The folder that `tailtap run --out` or `tailtap search --out` wrote.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="SITE",
    help="The folder for the site; by default DIR/site. An earlier site there is replaced, nothing "
    "else is.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only list what would leave, and what would be replaced: write nothing.",
)
@click.option(
    "--captures",
    default="refer",
    metavar="embed|refer[=URL]",
    help="Whether captures, stamps and traces are in the site, or named with their checksums, and "
    "with URL as the address of the folder that they are in. By default they are named alone.",
)
@click.option(
    "--allow",
    default="",
    metavar="KIND,…",
    help="Publish these as they are: serials, macs, hostnames, users, addresses (of IP), ids (of "
    "machines and boots). By default all are replaced.",
)
@click.option(
    "--hide",
    multiple=True,
    metavar="TEXT",
    help="Replace this text as well, such as a name. May be given several times.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="For a double-blind review: also replace folders, and leave of days the month.",
)
@click.option(
    "--license",
    "licence",
    metavar="NAME",
    help="The licence of the site by its name in the SPDX list, such as CC-BY-4.0.",
)
@click.option(
    "--author",
    "authors",
    multiple=True,
    metavar="NAME",
    help="An author: NAME <ORCID> (AFFILIATION), the last two if you like. May be given several "
    "times.",
)
def publish(
    folder: Path,
    out: Path | None,
    check: bool,
    captures: str,
    allow: str,
    hide: tuple[str, ...],
    anonymous: bool,
    licence: str | None,
    authors: tuple[str, ...],
    json: bool,
    quiet: bool,
) -> Answer:
    """Make a site of an experiment that others can read, check and run again.

    The site is a plain folder: it works from a disk and from any web server, and needs no network.
    It has an index, a page for each figure with its numbers and the command that draws it, a page
    for each run, the interactive report, all tables as Parquet, the machines, checksums, a citation
    and an RO-Crate. It is an experiment's folder, too: `tailtap report`, `verdict` and `compare`
    read it. The same runs make the same files, byte by byte.

    Whatever identifies people or machines is replaced, the same value by the same name everywhere:
    serial numbers, hardware and IP addresses, host and user names, ids of machines and boots,
    passwords. How testbeds are logged in to and switched is left out. What leaves and how much was
    replaced is printed and stands in the site, but no value is. Names are known by their fields
    and forms: look at the site before you publish it, and replace what is left by --hide.

    Needs `pip install 'tailtap[publish]'`.
    """
    record = library.publish(
        folder, out, captures=captures, allow=allow.split(","), hide=hide, anonymous=anonymous,
        licence=licence or None, authors=authors, check=check,
        progress=steps("publish", quiet=quiet),
    )  # fmt: skip
    return Answer(record, lambda: _print(record, leaving=check or not quiet))


def _print(record: PublishRecord, *, leaving: bool) -> None:
    if leaving:
        _print_leaving(record)
    for warning in record.site.warnings:
        warn(f"warning: {warning.message}")
    if record.folder:
        say_whole(record.folder)


def _print_leaving(record: PublishRecord) -> None:
    """What leaves, a line for each folder, and what was replaced."""
    from tailtap.cli.console import print_table
    from tailtap.show.publish.pages import WORDS, size_text
    from tailtap.show.sections.answers import leaving_tables

    more = "" if record.folder else ", and the figures, tables and pages that are made of them"
    say(f"what leaves: {len(record.files)} files, {size_text(record.bytes)}{more}")
    places, replaced, left_out = leaving_tables(record, WORDS)
    print_table(places)
    say()
    if not replaced:
        say("replaced: nothing that identifies was found")
    print_table(replaced)
    if left_out:
        say()
    print_table(left_out)
    if record.site.allowed:
        say(f"published as they are: {', '.join(WORDS[kind] for kind in record.site.allowed)}")
    say()

"""Warnings about what is published."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "What is published"
ENTRIES = (
    Entry(
        "no-licence",
        "The site does not say under which licence it may be used, so that nobody may use it.",
        "Choose one with `--license`.",
        note=True,
    ),
    Entry(
        "no-authors",
        "The site names nobody as its author, so that it cannot be cited.",
        "Name them with `--author`, or publish with `--anonymous`.",
        note=True,
    ),
    Entry(
        "imported-left-out",
        "Runs that were imported from others are not part of the site.",
        "Refer to where their authors published them.",
        note=True,
    ),
    Entry(
        "captures-nowhere",
        (
            "The site names captures with their checksums, and does not say where they are. Nobody "
            "can evaluate them again."
        ),
        "Name their place with `--captures refer=URL`, or publish them with `--captures embed`.",
        note=True,
    ),
    Entry(
        "packets",
        (
            "The site has captures with bytes of packets, as they were measured. Nothing in them "
            "is replaced."
        ),
        "Look whether these packets may be published, or leave the captures out.",
        note=True,
    ),
    Entry(
        "ambiguous-name",
        (
            "The name of a machine or person is also a word of the experiment, such as a host that "
            "is called `vm`. It was replaced in the fields that hold names, and stays elsewhere."
        ),
        "Name such texts with `--hide`, if they must not be published.",
        note=True,
    ),
    Entry(
        "large-site",
        "The site is larger than the 1 GB that hosts of static pages take.",
        "Put its captures into an archive and name it with `--captures refer=URL`.",
        note=True,
    ),
)

"""The command reference, made from the program's own help.

`python -m tailtap.cli.reference` prints it; a test compares it with docs/reference/commands.md.
"""

from __future__ import annotations

import re

from tailtap.cli.program import find, program
from tailtap.cli.registry import COMMANDS

HEAD = """# Commands

For whoever types or scripts them.

Made from the program's own help by `make docs`; a test fails when it is stale.

Every command has `--json` (print one JSON object to standard output), `--quiet` (print the result
and nothing else) and `--help`.

Exit status of every command: 0 done; 1 the answer is no; 2 bad input or usage; 3 this machine
cannot do it, or runs failed; 4 interrupted, finished runs kept; 70 a bug of tailtap; 141 nobody
reads the output any more. An error is one line on standard error. That of a bug says where its
traceback is.
"""
COMMON = re.compile(
    r"\n  (--json +Print one JSON object|--quiet +Print the result|-h, --help +Show this message).*"
)
"""What is said once, in the head."""
WIDTH = 96


def reference() -> str:
    """The reference of all commands as Markdown."""
    parts = [HEAD]
    with program.make_context("tailtap", [], resilient_parsing=True) as root:
        for name in COMMANDS:
            command = find(name)
            assert command is not None
            with command.make_context(
                name,
                [],
                parent=root,
                resilient_parsing=True,
                max_content_width=WIDTH,
                terminal_width=WIDTH,
            ) as context:
                text = COMMON.sub("", command.get_help(context).rstrip())
            text = re.sub(r"\n\nOptions:(?=\n\n|$)", "", text)
            parts.append(f"## tailtap {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(reference(), end="")

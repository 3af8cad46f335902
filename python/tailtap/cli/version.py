"""`tailtap version`: which tailtap this is."""

from __future__ import annotations

from tailtap.cli.options import Json, Quiet


def version(json: Json = False, quiet: Quiet = False) -> None:
    """Print the version of tailtap and of the kernel and Python under it."""
    import json as json_module
    import platform

    import tailtap

    versions = {
        "tailtap": tailtap.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    if json:
        print(json_module.dumps(versions))
    elif quiet:
        print(tailtap.__version__)
    else:
        for name, value in versions.items():
            print(f"{name} {value}")

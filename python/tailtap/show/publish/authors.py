"""Who published a site, and under which licence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailtap.base.errors import WrongValue

_AUTHOR = re.compile(
    r"(?P<name>[^<>()]+?)\s*(?:<(?P<orcid>[^<>]+)>)?\s*(?:\((?P<affiliation>[^()]+)\))?"
)
_ORCID = re.compile(r"(?:https://orcid\.org/)?((?:[0-9]{4}-){3}[0-9]{3}[0-9X])")


@dataclass(frozen=True)
class Author:
    """A person."""

    name: str
    orcid: str = ""
    """Sixteen digits in four groups, or empty."""
    affiliation: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """Given names and family name, which is taken for the last word."""
        given, _, family = self.name.rpartition(" ")
        return given, family

    @property
    def address(self) -> str:
        """The address that the ORCID is, or empty."""
        return f"https://orcid.org/{self.orcid}" if self.orcid else ""


def parse_author(text: str) -> Author:
    """An author, such as ``Ada Lovelace <0000-0002-1825-0097> (Analytical Society)``."""
    found = _AUTHOR.fullmatch(text.strip())
    orcid = _ORCID.fullmatch((found["orcid"] or "").strip()) if found else None
    if found is None or (found["orcid"] and (orcid is None or not _sound(orcid[1]))):
        raise WrongValue(
            "--author",
            text,
            "write NAME <ORCID> (AFFILIATION), the last two if you "
            "like, such as 'Ada Lovelace <0000-0002-1825-0097> (Analytical Society)'",
        )
    return Author(found["name"], orcid[1] if orcid else "", (found["affiliation"] or "").strip())


def _sound(orcid: str) -> bool:
    """Whether the last digit of an ORCID is that of ISO 7064, 11-2."""
    digits = orcid.replace("-", "")
    total = 0
    for digit in digits[:-1]:
        total = (total + int(digit)) * 2
    check = (12 - total % 11) % 11
    return digits[-1] == ("X" if check == 10 else str(check))


def parse_licence(text: str) -> str:
    """The SPDX name of a licence. Raises `InputError` for what the list does not have."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        found = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        found = ""
    if not found or " " in found or found.startswith("LicenseRef"):
        raise WrongValue(
            "--license",
            text,
            "this is no name of the SPDX list (spdx.org/licenses): "
            "data are often under CC-BY-4.0 or CC0-1.0",
        )
    return found

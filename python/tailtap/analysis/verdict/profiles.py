"""Named requirements, each with the document and the clause that it is from.

Documents state what a whole path must hold; a device is one part of it. A profile asks the whole
of the device: it is necessary, not sufficient, and a budget for one hop is `--require`.
"""

from __future__ import annotations

from tailtap.records.printed import ProfileRow

_URLLC = (
    "3GPP TR 38.913 clause 7.9 (success probability 1-10^-5 within 1 ms); "
    "Report ITU-R M.2410-0 clause 4.10"
)
_5QI = "3GPP TS 23.501 table 5.7.4-1, 5QI {}"
_5QI_READING = (
    "packet delay budget and packet error rate; late packets of a delay-critical flow count as "
    "lost (clause 5.7.3.4)"
)


def _profile(requirement: str, source: str, reading: str = "") -> ProfileRow:
    return ProfileRow(requirements=[requirement], source=source, reading=reading)


PROFILES = {
    "urllc-5g": _profile("reliability(1 ms) >= 99.999 %", _URLLC),
    "urllc-5g-six-nines": _profile(
        "reliability(1 ms) >= 99.9999 %",
        "Gallenmüller et al., How Low Can You Go?, section 1 (reliability up to six nines, "
        "latency as low as 1 ms)",
    ),
    "urllc-5g-strict": _profile(
        "reliability(0.5 ms) >= 99.999 %",
        "3GPP TR 38.913 clauses 7.5 (0.5 ms in each direction) and 7.9",
        "0.5 ms is the target of a mean there; here of 99.999 %",
    ),
    "5qi-82": _profile("reliability(10 ms) >= 99.99 %", _5QI.format(82), _5QI_READING),
    "5qi-83": _profile("reliability(10 ms) >= 99.99 %", _5QI.format(83), _5QI_READING),
    "5qi-84": _profile("reliability(30 ms) >= 99.999 %", _5QI.format(84), _5QI_READING),
    "5qi-85": _profile("reliability(5 ms) >= 99.999 %", _5QI.format(85), _5QI_READING),
    "5qi-86": _profile("reliability(5 ms) >= 99.99 %", _5QI.format(86), _5QI_READING),
    "motion-control": _profile(
        "reliability(500 us) >= 99.999 %",
        "3GPP TS 22.104 table 5.2-1, motion control, transfer interval 500 us",
        "the lower end of the availability that is asked for, of packets; a survival time is not "
        "granted",
    ),
    "fronthaul": ProfileRow(
        requirements=["max <= 100 us", "loss <= 0.1 ppm"],
        source="IEEE Std 802.1CM-2018 clauses 6.3.2.1 and 6.3.2.2 (high priority user plane data)",
        reading="",
    ),
}

"""What the lab holds on this machine: packet rates, lost stamps, the cost of a stamp. Needs root.

Every setup is asked for a rate for two seconds, several times in turn; medians are printed.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
from pathlib import Path
from typing import Any

from namespaces import Lab, Namespace

ROUNDS = 3
RATE = 500_000
MOST = 1_000_000
SECONDS = 2


def generate(namespace: Namespace, port: str, rate: int, cpu: int, *options: str) -> Any:
    """What the generator reports."""
    sent = namespace.tailtap(
        *("generate", port, "--rate", f"{rate} pkt/s", "--duration", f"{SECONDS} s"),
        *("--cpu", str(cpu), "--json", *options),
    )
    return json.loads(sent.stdout)


def one_generator(namespace: Namespace, folder: Path, link: str, *options: str) -> list[float]:
    """Rate, stamps and lost stamps of generator, ingress tap, link, egress tap on one core."""
    namespace.veth("gen", "in")
    namespace.veth("out", "far")
    links = (f"ingress={link}", "egress=far:drop")
    tap = namespace.start("tap", *links, "--write", f"{folder}/{{link}}.stamps")
    report = generate(namespace, "gen", RATE, 0, *options)
    counts = tap.stop()["links"].values()
    return [report["achieved_rate"], sum(c["seen"] for c in counts), sum(c["lost"] for c in counts)]


def two_generators(
    namespace: Namespace, folder: Path, ports: dict[str, str], rate: int, *options: str
) -> list[float]:
    """Two generators on two cores, and one tap at the far ends of all ports that they send through.

    Through the same port, both fill the same ring at once.
    """
    for port, far in ports.items():
        namespace.veth(port, far)
    links = [f"{far}:drop" for far in ports.values()]
    tap = namespace.start("tap", *links, "--write", f"{folder}/{{link}}.stamps")
    reports: list[Any] = []

    def send(cpu: int) -> None:
        port = list(ports)[cpu % len(ports)]
        reports.append(generate(namespace, port, rate // 2, cpu, *options))

    threads = [threading.Thread(target=send, args=[cpu]) for cpu in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = tap.stop()["links"].values()
    sent = sum(report["achieved_rate"] for report in reports)
    return [sent, sum(c["seen"] for c in counts), sum(c["lost"] for c in counts)]


def stamp_cost(namespace: Namespace, folder: Path) -> float:
    """Nanoseconds of the tap's program for each packet, as the kernel counts them."""
    namespace.veth("gen", "in")
    tap = namespace.start("tap", "in:drop", "--cost", "--write", f"{folder}/in.stamps")
    generate(namespace, "gen", 100_000, 0)
    return float(tap.stop()["links"]["in"]["cost_ns"])


def main() -> None:
    """Prints the table."""
    setups = {
        "one generator, both taps on links of their own": lambda n, f: one_generator(
            n, f, "in:out"
        ),
        "one generator, ingress tap at its egress": lambda n, f: one_generator(
            n, f, "gen@egress:out", "--no-bypass"
        ),
        "two generators on two cores, one tap": lambda n, f: two_generators(
            n, f, {"gen": "in"}, RATE
        ),
        "1 Mpkt/s: two of AF_XDP, one tap on two links": lambda n, f: two_generators(
            n, f, {"gen0": "in0", "gen1": "in1"}, MOST, "--generator", "af_xdp"
        ),
    }
    found: dict[str, list[list[float]]] = {name: [] for name in setups}
    costs = []
    for _ in range(ROUNDS):
        for name, measure in setups.items():
            found[name].append(in_namespace(measure))
        costs.append(in_namespace(stamp_cost))
    print(
        f"{RATE // 1000} kpkt/s, or as said, for {SECONDS} s, median of {ROUNDS} rounds in turn\n"
    )
    print(f"{'':48}{'kpkt/s':>8}{'stamps':>12}{'lost':>6}")
    for name, rows in found.items():
        rate, seen, lost = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:48}{rate / 1000:8.0f}{seen:12,.0f}{lost:6.0f}")
    print(f"\na stamp costs {statistics.median(costs):.0f} ns, the kernel's own clock included")


def in_namespace(measure: Any) -> Any:
    """Runs a measurement in a namespace of its own."""
    lab = Lab()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return measure(lab.namespace(), Path(folder))
        finally:
            for namespace in lab.namespaces:
                namespace.remove()


if __name__ == "__main__":
    main()

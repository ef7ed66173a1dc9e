"""Counts of a served router in the text format of Prometheus: requests, failures, tokens, dollars, seconds.

    metrics = RequestMetrics()
    metrics.add("requests", 1, model="small", status="ok")
    metrics.observe("decision_seconds", 0.0002)
    print(metrics.render())

Left out: everything that names a client or a prompt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "router_"
COUNTERS = {
    "requests": "Requests by the model that was chosen and what became of them",
    "failures": "Models that gave no reply, so that the next one was asked",
    "fallbacks": "Requests that another model than the chosen one answered",
    "calls": "Calls of a controller to its experts, by expert",
    "tokens": "Tokens read and written, by model",
    "cost_usd": "US dollars by model",
}
HISTOGRAMS = {
    "decision_seconds": "Seconds to choose a model",
    "request_seconds": "Seconds from a request to the end of its reply",
}
BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
Labels = tuple[tuple[str, str], ...]


class RequestMetrics:
    """Counters and histograms of one process; all are changed in one event loop."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = {
            name: defaultdict(float) for name in COUNTERS
        }
        self._buckets = {name: [0] * (len(BOUNDS) + 1) for name in HISTOGRAMS}
        self._sums = dict.fromkeys(HISTOGRAMS, 0.0)

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Raises a counter of COUNTERS by an amount."""
        self._counts[name][tuple(sorted(labels.items()))] += amount

    def observe(self, name: str, value: float) -> None:
        """Enters a value in a histogram of HISTOGRAMS."""
        bucket = next((index for index, bound in enumerate(BOUNDS) if value <= bound), len(BOUNDS))
        self._buckets[name][bucket] += 1
        self._sums[name] += value

    def render(self) -> str:
        """All metrics as text."""
        lines = []
        for name, meaning in COUNTERS.items():
            full_name = f"{PREFIX}{name}_total"
            lines += [f"# HELP {full_name} {meaning}", f"# TYPE {full_name} counter"]
            for labels, value in sorted(self._counts[name].items()):
                lines.append(f"{full_name}{_write_labels(dict(labels))} {value:.10g}")
        for name, meaning in HISTOGRAMS.items():
            full_name = f"{PREFIX}{name}"
            lines += [f"# HELP {full_name} {meaning}", f"# TYPE {full_name} histogram"]
            # A bucket of the format counts everything up to its bound.
            count = 0
            for bound, in_bucket in zip((*BOUNDS, "+Inf"), self._buckets[name], strict=True):
                count += in_bucket
                lines.append(f'{full_name}_bucket{{le="{bound}"}} {count}')
            lines.append(f"{full_name}_sum {self._sums[name]:.10g}")
            lines.append(f"{full_name}_count {count}")
        return "\n".join(lines) + "\n"


def _write_labels(labels: Mapping[str, str]) -> str:
    """Labels as {name="value",...}; "" for none."""
    if not labels:
        return ""
    pairs = []
    for name, value in labels.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"

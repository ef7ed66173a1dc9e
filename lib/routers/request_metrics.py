"""Counters and histograms of a served router, exposed in the text format of Prometheus.

    metrics = RequestMetrics()
    metrics.add("requests", 1, model="small", status="ok")
    metrics.observe("decision_seconds", 0.0002)
    print(metrics.render())      # the reply to GET /metrics, which a Prometheus server reads at intervals

Left out: everything that identifies a client or a prompt.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping

# Of Prometheus' text exposition format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "router_"  # of all metric names, as Prometheus recommends one for each application
# By name, the help text that Prometheus shows.
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
# Upper bounds in seconds of the buckets of all histograms; a last bucket has no bound.
BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# Sorted pairs of a label's name and value, such as (("model", "small"), ("status", "ok")).
Labels = tuple[tuple[str, str], ...]


class RequestMetrics:
    """Counters and histograms of one server process, changed by one event loop only, so that no lock is needed."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = {
            name: defaultdict(float) for name in COUNTERS
        }
        self._buckets = {name: [0] * (len(BOUNDS) + 1) for name in HISTOGRAMS}
        self._sums = dict.fromkeys(HISTOGRAMS, 0.0)

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Increases a counter.

        Args:
            name: One of COUNTERS.
            amount: How much is added, 0 or more.
            labels: What the count is kept apart by, such as model="small".
        """
        self._counts[name][tuple(sorted(labels.items()))] += amount

    def observe(self, name: str, value: float) -> None:
        """Adds an observed value to a histogram.

        Args:
            name: One of HISTOGRAMS.
            value: Seconds.
        """
        # The first bound that is not below the value; len(BOUNDS) for a value above all bounds.
        bucket = bisect.bisect_left(BOUNDS, value)
        self._buckets[name][bucket] += 1
        self._sums[name] += value

    def render(self) -> str:
        """Renders all metrics in Prometheus' text format, one value a line: name{label="value"} number.

        Returns:
            The text.
        """
        lines = []
        for name, help_text in COUNTERS.items():
            lines += self._render_counter(name, help_text)
        for name, help_text in HISTOGRAMS.items():
            lines += self._render_histogram(name, help_text)
        return "\n".join(lines) + "\n"

    def _render_counter(self, name: str, help_text: str) -> list[str]:
        """Lines of a counter, whose name ends in _total by Prometheus' convention."""
        full_name = f"{PREFIX}{name}_total"
        lines = [f"# HELP {full_name} {help_text}", f"# TYPE {full_name} counter"]
        for labels, value in sorted(self._counts[name].items()):
            lines.append(f"{full_name}{_write_labels(dict(labels))} {value:.10g}")
        return lines

    def _render_histogram(self, name: str, help_text: str) -> list[str]:
        """Renders a histogram: a count for each bucket, then sum and number of all values.

        Args:
            name: Name of the metric.
            help_text: Its description.

        Returns:
            Lines.
        """
        full_name = f"{PREFIX}{name}"
        lines = [f"# HELP {full_name} {help_text}", f"# TYPE {full_name} histogram"]
        # In this format a bucket counts all values up to its bound (le: less or equal), so that counts add up.
        count = 0
        for bound, in_bucket in zip((*BOUNDS, "+Inf"), self._buckets[name], strict=True):
            count += in_bucket
            lines.append(f'{full_name}_bucket{{le="{bound}"}} {count}')
        lines.append(f"{full_name}_sum {self._sums[name]:.10g}")
        lines.append(f"{full_name}_count {count}")
        return lines


def _write_labels(labels: Mapping[str, str]) -> str:
    """Formats labels for Prometheus as {name="value",...}.

    Args:
        labels: Values by name; backslashes, quotes and line ends in them are escaped.

    Returns:
        The text; "" without labels.
    """
    if not labels:
        return ""
    pairs = []
    for name, value in labels.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"

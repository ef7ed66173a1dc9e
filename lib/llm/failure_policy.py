"""Counts of replies by what became of them, and when failures of the infrastructure end a run.

A server that is down must not look like a model that is bad. Such failures are never scored; after MAX_IN_A_ROW of
them in a row, or from MIN_FAILURES on more than MAX_SHARE of all calls, the run ends. A call that a provider's
moderation stopped counts as failed, but stops no run: it is about that one prompt. A question whose answer was lost so
is left out of the scores of everybody; in a longer episode a fallback acts for that one decision.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields

from lib.llm.chat_model import Reply
from lib.llm.errors import InfrastructureError

MAX_IN_A_ROW = 5
MIN_FAILURES = 5
# Of all calls; also the share of unusable replies above which a row leaves the verdicts.
MAX_SHARE = 0.05


@dataclass
class ReplyCounts:
    """How many replies of one model came to what.

    Attributes:
        calls: Replies in all.
        failed: Calls that the infrastructure failed; they are scored nowhere.
        truncated: Replies that were cut off at their limit of tokens.
        unusable: Other replies that hold no answer: refused, empty, malformed.
        fallback: Decisions that something else took, because no reply could be used.
    """

    calls: int = 0
    failed: int = 0
    truncated: int = 0
    unusable: int = 0
    fallback: int = 0

    def add(self, reply: Reply) -> None:
        """Counts a reply as usable, failed, cut off or unusable.

        Args:
            reply: The reply, with its failure if it has one.
        """
        self.calls += 1
        if reply.failure is None:
            return
        if reply.failure.of_infrastructure:
            self.failed += 1
        elif reply.failure.kind == "truncated":
            self.truncated += 1
        else:
            self.unusable += 1

    def __add__(self, other: ReplyCounts) -> ReplyCounts:
        names = [field.name for field in fields(self)]
        return ReplyCounts(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def share_without_answer(self) -> float:
        """The share of calls that gave no answer of the model's own; 0 without calls."""
        without_answer = self.failed + self.truncated + self.unusable
        return max(without_answer, self.fallback) / self.calls if self.calls else 0.0

    @property
    def too_many(self) -> bool:
        """Whether so many replies hold no answer that results must not be taken for the model's."""
        return self.share_without_answer > MAX_SHARE

    def describe(self) -> str:
        """Describes the counts in a line: all calls, and number and share of each kind of failure."""
        if not self.calls:
            return "no calls"
        counts = {
            "failed": self.failed,
            "cut off": self.truncated,
            "unusable": self.unusable,
            "fallback": self.fallback,
        }
        losses = []
        for name, count in counts.items():
            if count:
                losses.append(f"{count} {name} ({count / self.calls:.1%})")
        return f"{self.calls:,} calls" + (", " + ", ".join(losses) if losses else ", all usable")


def require_reply(reply: Reply, purpose: str) -> None:
    """Stop work that cannot go on without this reply and could get it from a later run.

    Args:
        reply: Reply of any model.
        purpose: What was asked for, in a few words.

    Raises:
        InfrastructureError: Where the infrastructure failed; a failure of the model passes.
    """
    failure = reply.failure
    if failure is not None and failure.may_succeed_later:
        raise InfrastructureError(
            f"{reply.model}: {purpose} could not be asked for ({failure.kind}: {failure.detail}); run again, replies "
            "that came are kept"
        )


class FailureWatch:
    """Counts one model's replies and ends the run where its server fails too often. Thread-safe."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.counts = ReplyCounts()
        self._failures_in_a_row = 0
        self._lock = threading.Lock()

    def add(self, reply: Reply) -> None:
        """Count a reply.

        Args:
            reply: Reply of the model.

        Raises:
            InfrastructureError: Where the infrastructure failed too often; the message says how and what to check.
        """
        with self._lock:
            self.counts.add(reply)
            failure = reply.failure
            if failure is None or not failure.of_infrastructure:
                self._failures_in_a_row = 0
                return
            # A prompt that a filter stops says nothing about the next one: no reason to end the run.
            if not failure.may_succeed_later:
                return
            self._failures_in_a_row += 1
            failed, calls = self.counts.failed, self.counts.calls
            too_many = failed >= MIN_FAILURES and failed > MAX_SHARE * calls
            if self._failures_in_a_row >= MAX_IN_A_ROW or too_many:
                raise InfrastructureError(
                    f"{self.model}: {failed} of {calls} calls failed, {self._failures_in_a_row} in a row; the last: "
                    f"{failure.kind} ({failure.detail}). None of them was scored; check the server and run again, "
                    "what is finished is kept"
                )

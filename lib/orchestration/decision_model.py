"""What decides: a context goes in, a distribution over policies comes out.

KO, TO and RO are contexts (`contexts.TABLE_1`); a decision model is whoever reads them: a prompted chat model
(`prompted_model`), the small lab-orchestrator (`lab_orchestrator`) or a baseline (`baseline_models`). All are asked the
same way, a batch of episodes at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lib.orchestration.contexts import DecisionContext

VERSION = 1  # of what a decision is
UNUSABLE = "unusable"  # the model's reply names no policy, also after a correction
LOST = "lost"  # the infrastructure lost the reply: nobody knows what the model would have chosen
UNFUNDED = "unfunded"  # the episode's budget does not pay for the call


@dataclass(frozen=True)
class PromptSection:
    """A rendered context component: its name in Table 1, the message that it belongs to, its text."""

    component: str
    role: str
    text: str


@dataclass(frozen=True)
class ModelExchange:
    """One prompt and its reply, kept for readers.

    Attributes:
        parts: The prompt's sections.
        reply: The model's text.
        outcome: What came of it, such as "picked SO-d1".
    """

    parts: Sequence[PromptSection]
    reply: str
    outcome: str


@dataclass
class DecisionUsage:
    """What asking a model took.

    Attributes:
        calls: Requests to the model.
        tokens_in, tokens_out: Tokens of prompts and of replies.
        cost_usd: Dollars.
        kwh: Energy, by the paper's formula (A.6).
        invalid_replies: Replies that could not be used, those that a correction mended included.
        repaired_replies: Replies that were read although they were not clean JSON.
        failure_kinds: Kinds of the invalid replies, in order.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    kwh: float = 0.0
    invalid_replies: int = 0
    repaired_replies: int = 0
    failure_kinds: list[str] = field(default_factory=list)

    def add(self, other: "DecisionUsage") -> None:
        """Add the calls, tokens, dollars and failures of other requests to this usage.

        Args:
            other: The usage to add.
        """
        self.calls += other.calls
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        self.cost_usd += other.cost_usd
        self.kwh += other.kwh
        self.invalid_replies += other.invalid_replies
        self.repaired_replies += other.repaired_replies
        self.failure_kinds += other.failure_kinds


@dataclass
class Decision:
    """A model's answer to one context: a distribution, a wish to try policies first, or a failure.

    Attributes:
        probabilities: (policies,) in the order of the menu; None where the model wants to try policies, or failed.
        calls: Policies to try on copies before deciding (TO, RO).
        failure: UNUSABLE, LOST or UNFUNDED where nothing was decided; the fallback policy acts then.
        reasoning: What the model says about its choice.
        usage: What it took.
        exchanges: Prompts and replies, where they are kept for readers.
    """

    probabilities: np.ndarray | None = None
    calls: tuple[str, ...] = ()
    failure: str = ""
    reasoning: str = ""
    usage: DecisionUsage = field(default_factory=DecisionUsage)
    exchanges: list[ModelExchange] = field(default_factory=list)


class DecisionModel(Protocol):
    """Whoever decides.

    Attributes:
        name: Name of the model in tables.
        backend: Backend of the model, as in `lib.llm.chat_model.Reply`; "policy" where no language model decides.
        reads_words: Whether contexts need words for states and tool results; numbers are there always.
        chooses_calls: Whether it asks for tool calls; otherwise every policy is tried for it before it decides.
        is_greedy: Whether the likeliest policy acts, instead of one drawn from the distribution.
        summary_interval: Steps between updates of the long-term memory; 0 keeps none.
    """

    name: str
    backend: str
    reads_words: bool
    chooses_calls: bool
    is_greedy: bool
    summary_interval: int

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Decide in a batch of episodes: which policy acts next, or which policies to try first.

        Args:
            contexts: One per episode.

        Returns:
            A decision for each, in order.
        """
        ...

    def summarize(self, contexts: Sequence[DecisionContext]) -> list[tuple[str, DecisionUsage]]:
        """Rewrite the running summary (long-term memory) of each episode; called where `summary_interval` > 0.

        Args:
            contexts: One per episode; `recent` holds the steps since the last summary.

        Returns:
            For each, the new summary, and the calls and tokens of writing it.
        """
        ...


class NumericModel:
    """Base of the models that read numbers and ask nobody."""

    name = ""
    backend = "policy"
    reads_words = False
    chooses_calls = False
    is_greedy = True
    summary_interval = 0

    def summarize(self, contexts: Sequence[DecisionContext]) -> list[tuple[str, DecisionUsage]]:
        """Keeps no long-term memory."""
        raise NotImplementedError(f"{self.name} keeps no summary")


def choose_surely(index: int, num_policies: int) -> Decision:
    """A decision for one policy with probability 1.

    Args:
        index: Position of the policy on the menu.
        num_policies: Policies on the menu.
    """
    probabilities = np.zeros(num_policies)
    probabilities[index] = 1.0
    return Decision(probabilities)

"""lab-orchestrator: a small language model, trained on made-up situations, that decides from a `DecisionContext`.

A context is written as a decision situation in the lab's words (`lib.language_models.training.decision_traces`): the
importance of the criteria, the state at hand, and the rows that the context's components hold.

| component    | in the prompt                                                                          |
|--------------|----------------------------------------------------------------------------------------|
| query, state | importance beside every number; the state at hand in front                             |
| know         | KO: of every card the row of the state at hand                                         |
| tools        | TO: what a step of every policy gave on copies                                         |
| reflect      | RO: what several steps of every policy gave on copies                                  |
| mem_s        | the last steps, where a domain's results are means per step                            |

Policies and states get names that mean nothing, so nothing that the model could remember of a policy helps it. It
has seen neither these policies nor these domains in training.

Left out:

- Rows of a card about other states. The model had not learned to find the row that counts in the training that was
  tried (measured in `decision_traces`), so it is picked for it; a prompted model reads whole cards.
- Past steps in rooms. There results add up over a rollout, so that the result of one step compares with none of them:
  each step but the last would say that its policy reaches no goal and avoids no lava.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from lib.config import LabSettings
from lib.experiment import seeds
from lib.language_models.chat_template import encode_conversation
from lib.language_models.checkpoints import ModelError
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import encode
from lib.language_models.training import build, released_weights
from lib.language_models.training.decision_traces import (
    ROLLOUT,
    STATES,
    TRIAL,
    TraceSituation,
    make_situation,
)
from lib.orchestration.contexts import TABLE_1, DecisionContext
from lib.orchestration.decision_model import Decision, DecisionUsage, NumericModel
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.tasks.vocabulary import PEOPLE

VERSION = 1  # of what lab-orchestrator chooses
NAME = "lab-orchestrator"
_REPLY_START = "<answer>"
_BATCH_SIZE = 256  # prompts that are read together


@dataclass(frozen=True)
class _Answer:
    """What the model says about one prompt: probabilities in the order of the menu, and the prompt's length."""

    probabilities: np.ndarray
    num_tokens: int


class LabOrchestrator(NumericModel):
    """The released model as a decision model. Equal prompts are computed once, as long as the object lives."""

    name = NAME
    backend = "lab"
    is_greedy = True

    def __init__(self, settings: LabSettings) -> None:
        """Load the released weights of the model.

        Args:
            settings: Settings of the lab models; the weights must have been trained with them.

        Raises:
            ModelError: Where the released weights were trained by another recipe.
        """
        if not build.fits_released(settings, NAME):
            raise ModelError(
                f"{NAME} is not shipped with the recipe that params.yaml holds; {released_weights.REMEDY}"
            )
        self.forward = Forward(released_weights.unpack(NAME, settings.models[NAME]))
        self._answers: dict[tuple[str, tuple[str, ...]], _Answer] = {}

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Compute the distribution over policies in every context, the softmax over the logits of their names.

        Args:
            contexts: One per episode, with cards (KO) or results (TO, RO) of every policy.

        Returns:
            A decision for each, in order.

        Raises:
            ValueError: The menu has more policies than the model knows names, or cards or results are missing.
        """
        questions = []
        for context in contexts:
            names = deal_names(context.policies)
            prompt = write_situation(context).prompt
            questions.append((prompt, tuple(names[policy] for policy in context.policies)))

        new_questions = [key for key in dict.fromkeys(questions) if key not in self._answers]
        for begin in range(0, len(new_questions), _BATCH_SIZE):
            self._read_prompts(new_questions[begin : begin + _BATCH_SIZE])

        decisions = []
        for question in questions:
            answer = self._answers[question]
            usage = DecisionUsage(calls=1, tokens_in=answer.num_tokens, tokens_out=1)
            decisions.append(Decision(answer.probabilities.copy(), usage=usage))
        return decisions

    @torch.inference_mode()
    def _read_prompts(self, questions: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        """Compute the distribution over policies for a batch of prompts, and remember it by prompt.

        Every name is one token, so a policy's logit is that of its name.

        Args:
            questions: Pairs of a prompt and the names of the policies on its menu.

        Raises:
            ValueError: A prompt is longer than the model's window.
        """
        reply_start = encode(_REPLY_START)
        prompts = []
        for prompt, _ in questions:
            ids = [*encode_conversation([{"role": "user", "content": prompt}]), *reply_start]
            if len(ids) >= self.forward.window:
                raise ValueError(
                    f"{NAME} reads {self.forward.window} tokens, the context has {len(ids)}; "
                    "choose among fewer policies, or shorten the memory"
                )
            prompts.append(ids)

        (hidden,) = self.forward.compute_last_states(prompts)  # (prompts, d)
        for question, ids, state in zip(questions, prompts, hidden, strict=True):
            _, names = question
            name_ids = [encode(name)[0] for name in names]
            # Prompt by prompt: in one product for all, a logit's last bits would depend on the batch.
            logits = self.forward.head[name_ids].double() @ state.double()  # (policies,)
            probabilities = torch.softmax(logits, dim=0).numpy()
            self._answers[question] = _Answer(probabilities, len(ids))


# Contexts in the lab's words ------------------------------------------------------------------------


def write_situation(context: DecisionContext) -> TraceSituation:
    """Translate a context into the words that lab-orchestrator was trained on.

    Args:
        context: A context with cards (KO) or results (TO, RO) of every policy.

    Returns:
        The situation, in which policies and states have made-up names. Equal contexts are equal situations.

    Raises:
        ValueError: For a menu of more policies than there are names, and where cards or results are missing.
    """
    _check_results(context)
    names = deal_names(context.policies)
    state = deal_state(context.state.situation, context.policies)
    source = {"KO": state, "TO": TRIAL, "RO": ROLLOUT}[context.system]
    results_by_policy = context.results_by_policy()
    results = {names[policy]: results_by_policy[policy] for policy in context.policies}
    memory = []
    if DESCRIBERS[context.domain.name].averages_over_steps:
        memory = [(names[past.policy], past.results) for past in context.recent]
    return make_situation(context.query.weights, state, source, results, memory)


def _check_results(context: DecisionContext) -> None:
    """Check that a context has a card (KO) or a result (TO, RO) of every policy.

    Args:
        context: The context of one episode.

    Raises:
        ValueError: One is missing, or the context is of no such system.
    """
    num_policies = len(context.policies)
    if context.system not in TABLE_1:
        raise ValueError(
            f"{NAME} decides for {', '.join(TABLE_1)}; the context is of {context.system!r}"
        )
    if context.system == "KO" and len(context.knowledge) != num_policies:
        raise ValueError(
            f"{NAME} needs a card of every policy; the context has {len(context.knowledge)} of {num_policies}"
        )
    if context.system != "KO" and context.untried:
        raise ValueError(
            f"{NAME} needs a result of every policy; {', '.join(context.untried)} was not tried"
        )


@cache
def deal_names(policies: tuple[str, ...]) -> dict[str, str]:
    """Assign each policy of a menu one of the names that lab-orchestrator was trained on, at random.

    Args:
        policies: Their names on the menu; nothing else decides.

    Returns:
        Policy -> its name in the prompt.

    Raises:
        ValueError: For more policies than there are names.
    """
    if len(policies) > len(PEOPLE):
        raise ValueError(f"{NAME} has names for {len(PEOPLE)} policies, got {len(policies)}")
    order = seeds.rng("orchestration", NAME, *policies).permutation(len(PEOPLE))
    return {policy: PEOPLE[i] for policy, i in zip(policies, order, strict=False)}


@cache
def deal_state(situation: str, policies: tuple[str, ...]) -> str:
    """Assign a situation one of the state words that lab-orchestrator was trained on.

    Args:
        situation: A coarse label of the state, such as "mastery low, failed questions open".
        policies: The menu, which decides the word together with the situation.

    Returns:
        One of STATES.
    """
    stream = seeds.rng("orchestration", NAME, "state", situation, *policies)
    return STATES[int(stream.integers(len(STATES)))]

"""lab-orchestrator as a reader of briefs: a small language model that was taught to rank policies by what is told.

A brief is written as a decision situation in the lab's own words (`lib.language_models.training.decision_traces`),
under names that are dealt anew, so nothing that the model could remember of a policy helps it. Of a card it is shown
the page of the situation at hand. It picks the name that it holds most likely; names that are not on the menu cannot
be picked.
"""

from collections.abc import Sequence

import torch

from lib.config import LabSettings
from lib.experiment import seeds
from lib.language_models.chat_template import encode_conversation
from lib.language_models.checkpoints import ModelError
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import encode
from lib.language_models.training import build, released_weights
from lib.language_models.training.decision_traces import (
    LOOKAHEAD,
    STATES,
    TraceSituation,
    make_situation,
)
from lib.orchestration.decision_context import Brief
from lib.tasks.vocabulary import PEOPLE

VERSION = 1  # of what lab-orchestrator chooses
NAME = "lab-orchestrator"
_ANSWERS = "<answer>"  # what a reply begins with


def situation(brief: Brief) -> tuple[TraceSituation, dict[str, str]]:
    """A brief in the lab's words, and the policy behind each of its names.

    Names and states are dealt by the menu's order and nothing else: equal briefs are equal situations. Raises
    ValueError for a menu of more policies than there are names.
    """
    if len(brief.names) > len(PEOPLE):
        raise ValueError(f"{NAME} has names for {len(PEOPLE)} policies, got {len(brief.names)}")
    rng = seeds.rng("orchestration", NAME, *brief.names)
    dealt = dict(zip(brief.names, (PEOPLE[i] for i in rng.permutation(len(PEOPLE))), strict=False))
    when = LOOKAHEAD if brief.looks else STATES[int(rng.integers(len(STATES)))]
    lab = make_situation(
        brief.weights, when, {dealt[name]: rewards for name, rewards in brief.told.items()}
    )
    return lab, {alias: name for name, alias in dealt.items()}


class Taught:
    """The shipped model as a reader. What was asked once is remembered as long as the object lives."""

    name, backend = NAME, "lab"

    def __init__(self, settings: LabSettings) -> None:
        """settings: of the lab. Raises ModelError where the shipped weights were trained by another recipe."""
        if not build.fits_released(settings, NAME):
            raise ModelError(
                f"{NAME} is not shipped with the recipe that params.yaml holds; {released_weights.REMEDY}"
            )
        self.forward = Forward(released_weights.unpack(NAME, settings.models[NAME]))
        self._known: dict[str, str] = {}

    def choose(self, briefs: Sequence[Brief]) -> list[str]:
        """The policy that the model names for each brief. Raises ValueError as `situation` does."""
        asked = [situation(brief) for brief in briefs]
        new = {
            each.prompt: tuple(behind) for each, behind in asked if each.prompt not in self._known
        }
        if new:
            self._known |= dict(zip(new, self._picked(list(new), list(new.values())), strict=True))
        return [behind[self._known[each.prompt]] for each, behind in asked]

    @torch.inference_mode()
    def _picked(self, prompts: Sequence[str], names: Sequence[Sequence[str]]) -> list[str]:
        """The likeliest of its names for each prompt."""
        begun = encode(_ANSWERS)
        ids = [
            [*encode_conversation([{"role": "user", "content": prompt}]), *begun]
            for prompt in prompts
        ]
        (hidden,) = self.forward.compute_last_states(ids)
        scores = self.forward.compute_logits(hidden)
        tokens = [[encode(name)[0] for name in menu] for menu in names]
        return [
            menu[int(row[ids].argmax())]
            for menu, row, ids in zip(names, scores, tokens, strict=True)
        ]

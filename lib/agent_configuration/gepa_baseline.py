"""GEPA (Agrawal et al. 2025), reflective evolution of prompts: the package `gepa` on our agents and chat models.

A candidate is the text of instructions of each agent, in the structure that `prompt_optimizers.select_structure` picks.
gepa plays small batches, hands what happened to a reflecting model, and keeps a text that does better. Agents that obey
a few hints only, as lab models do, need no model that writes: there a rule adds or drops one instruction of the
library, and tables call that a scripted reflection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gepa
import numpy as np
from gepa import EvaluationBatch

from lib.agent_configuration.action_space import AGENTS
from lib.agent_configuration.atoms import Atom
from lib.agent_configuration.prompt_optimizers import SEPARATOR, Candidate, PromptedSystem
from lib.experiment import seeds
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.event_loop import EventLoopThread
from lib.llm.failure_policy import require_reply
from lib.tasks import Item

MINIBATCH = 3  # questions of one reflection (the default of gepa)
REFLECTION_TOKENS = 400

Reflect = Callable[[str | list[dict[str, Any]]], str]


class _QuietLogger:
    def log(self, message: str) -> None:
        """Keep progress messages off the notebook."""


class ConfigurationAdapter:
    """What gepa asks of a system: scores of a candidate, and feedback on what it did.

    Without a reflecting model, new texts come from a rule: one instruction of the library more, or one fewer.
    """

    def __init__(
        self, prompted: PromptedSystem, library: Sequence[Atom], rng: np.random.Generator | None
    ) -> None:
        """Prepare to evaluate.

        Args:
            prompted: The agents with their structure.
            library: Instructions for lab agents, which obey no others.
            rng: Draws the rule's instructions; None where a model reflects.
        """
        self.prompted = prompted
        self.library = library
        self.rng = rng
        self.propose_new_texts = self._propose_from_library if rng is not None else None

    def evaluate(
        self, batch: list[Item], candidate: Candidate, capture_traces: bool = False
    ) -> EvaluationBatch:
        """Score a candidate on a batch of questions, in the form that gepa expects.

        Args:
            batch: The questions.
            candidate: Instructions by role of the agent.
            capture_traces: Return the agents' notes, too.

        Returns:
            Answers, rewards, and the notes.
        """
        outcomes, rewards = self.prompted.play(batch, candidate)
        traces = list(zip(batch, outcomes, strict=True)) if capture_traces else None
        answers = [outcome.answer for outcome in outcomes]
        return EvaluationBatch(outputs=answers, scores=rewards.tolist(), trajectories=traces)

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: EvaluationBatch, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Write what the reflecting model reads of a batch, as gepa asks for it.

        Args:
            candidate: The instructions that were evaluated.
            eval_batch: What `evaluate` returned, with traces.
            components_to_update: Roles of the agents whose instructions are to be improved.

        Returns:
            For each of these roles a record of every question: what the agent wrote, and whether the answer is right.
        """
        dataset = {}
        for role in components_to_update:
            agent = AGENTS.index(role)
            records = []
            for (item, outcome), score in zip(
                eval_batch.trajectories, eval_batch.scores, strict=True
            ):
                # An agent may have been called several times, or not at all in this workflow.
                notes = [note.whole for note in outcome.trail if note.agent == agent]
                verdict = "right" if outcome.correct else f"wrong; it is {item.reference}"
                feedback = f"The answer {outcome.answer!r} is {verdict}. Reward {score:.2f}."
                records.append(
                    {
                        "Inputs": {"question": item.prompt},
                        "Generated Outputs": "\n".join(notes) or "(this agent said nothing)",
                        "Feedback": feedback,
                    }
                )
            dataset[role] = records
        return dataset

    def _propose_from_library(
        self,
        candidate: Candidate,
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> Candidate:
        """Propose new instructions for some agents: one is added from the library, or one dropped, at random.

        Args:
            candidate: The instructions of all agents.
            reflective_dataset: What a reflecting model would read; not used.
            components_to_update: Roles of the agents whose instructions are changed.

        Returns:
            The new instructions of these agents.
        """
        texts = {}
        for role in components_to_update:
            hints = [hint for hint in candidate[role].split(SEPARATOR) if hint]
            hints_of_role = [atom.hint for atom in self.library if atom.role == role]
            new_hints = [hint for hint in hints_of_role if hint not in hints]
            if hints and (not new_hints or self.rng.random() < 0.5):
                del hints[int(self.rng.integers(len(hints)))]
            elif new_hints:
                hints.append(new_hints[int(self.rng.integers(len(new_hints)))])
            texts[role] = SEPARATOR.join(hints)
        return texts


def make_reflection(model: ChatModel, loop: EventLoopThread, seed: int) -> Reflect:
    """Make a reflecting model for gepa: a function from a prompt to the model's reply.

    Args:
        model: The model that reflects.
        loop: The event loop that it is asked on.
        seed: Seed of the first call; each call has a seed of its own.

    Returns:
        The function.
    """
    num_calls = 0

    def reflect(prompt: str | list[dict[str, Any]]) -> str:
        """Ask the reflecting model, with another seed in every call.

        Args:
            prompt: Text or messages.

        Returns:
            Its reply.
        """
        nonlocal num_calls
        num_calls += 1
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        request = ChatRequest(
            messages, seed=seed + num_calls, max_tokens=REFLECTION_TOKENS, caller="gepa"
        )
        reply = loop.run(model.reply_to(request))
        require_reply(reply, "a reflection")
        return reply.text

    return reflect


def optimize_with_gepa(
    prompted: PromptedSystem,
    items: Sequence[Item],
    library: Sequence[Atom],
    max_episodes: int,
    seed: int,
    reflect: Reflect | None = None,
) -> Candidate:
    """Evolve the instructions of all agents by GEPA.

    Args:
        prompted: The agents with their structure.
        items: Training questions; half of them choose among candidates.
        library: Instructions for lab agents.
        max_episodes: Questions that may be played.
        seed: Seed of gepa's choices.
        reflect: What `make_reflection` returns; None for the rule that draws from the library.

    Returns:
        The best candidate by mean reward on its half of the questions.
    """
    rng = None if reflect is not None else seeds.rng("configuration", "gepa", seed=seed)
    half = len(items) // 2
    result = gepa.optimize(
        seed_candidate=dict.fromkeys(AGENTS, ""),
        trainset=list(items[:half]) or list(items),
        valset=list(items[half:]),
        adapter=ConfigurationAdapter(prompted, library, rng),
        reflection_lm=reflect,
        reflection_minibatch_size=min(MINIBATCH, max(1, half)),
        max_metric_calls=max_episodes,
        perfect_score=np.inf,  # there is no highest reward, tools may be used again and again
        logger=_QuietLogger(),
        cache_evaluation=True,
        seed=seed,
    )
    return dict(result.best_candidate)

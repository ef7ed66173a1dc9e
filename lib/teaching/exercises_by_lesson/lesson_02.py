"""Exercises of the orchestration: a prompt, what looking ahead promises, LinUCB, and a decision model of one's own."""

import math
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

from lib.config import Params
from lib.experiment import seeds
from lib.llm import cost_ledger
from lib.orchestration import prompts
from lib.orchestration.baseline_models import ConstantModel, RandomModel
from lib.orchestration.contexts import DecisionContext
from lib.orchestration.decision_model import (
    Decision,
    DecisionModel,
    NumericModel,
    PromptSection,
    choose_surely,
)
from lib.orchestration.menus import make_menu
from lib.orchestration.system_options import SystemOptions
from lib.orchestration.worlds import make_episode_sets
from lib.policy_zoo.recipes import SINGLE
from lib.policy_zoo.zoo_folder import ensure_zoo
from lib.teaching.exercises_by_lesson import Exercise, Exercises

CLAUDE = cost_ledger.PRICES["Claude 3.7 Sonnet"]

# Prompts ------------------------------------------------------------------------------------------

STUB_OF_ASSEMBLY = '''from lib.orchestration.decision_model import PromptSection


def assemble_prompt(sections: list[PromptSection]) -> list[dict[str, str]]:
    """Join the sections of a prompt into a system and a user message.

    Args:
        sections: Each has a component, a role ("system" or "user") and a text, in the order of the prompt.

    Returns:
        A message {"role": ..., "content": ...} for each role that has a section, system first. Texts keep their order,
        and an empty line stands between two of them.
    """
    raise NotImplementedError


answer = assemble_prompt'''


def assemble_prompt(sections: list[PromptSection]) -> list[dict[str, str]]:
    """Joins the sections of a prompt into a system message and a user message.

    Args:
        sections: Text and role of each section, in order.

    Returns:
        {"role", "content"} of each role that has a section.
    """
    messages = []
    for role in ("system", "user"):
        texts = [section.text for section in sections if section.role == role]
        if texts:
            messages.append({"role": role, "content": "\n\n".join(texts)})
    return messages


def assemble_in_one_message(sections: list[PromptSection]) -> list[dict[str, str]]:
    """The mistake: the rules stand in the user's message, where they count less."""
    return [{"role": "user", "content": "\n\n".join(section.text for section in sections)}]


def _check_assembly(answer) -> bool | str:
    """Checks a function that assembles a prompt, on every order of four sections, and on prompts without a system
    section.

    Args:
        answer: The student's solution, from sections to messages.

    Returns:
        True, or what is wrong.
    """
    sections = (
        PromptSection("instr", "system", "# Role\nYou steer."),
        PromptSection("mem_l", "system", "# Summary\nSO-d1 has worked."),
        PromptSection("query", "user", "# Query\nStep 3 of 50."),
        PromptSection("state", "user", "# State\nmastery 0.40"),
    )
    cases = [list(order) for order in permutations(sections)]
    cases += [[sections[2]], [sections[3], sections[2]], []]
    for case in cases:
        messages = answer(list(case))
        if messages == prompts.assemble(case):
            continue
        components = ", ".join(section.component for section in case) or "no sections"
        return f"for the sections {components} you return {messages}"
    return True


# LinUCB -------------------------------------------------------------------------------------------

STUB_OF_LINUCB = '''import numpy as np


def fit_linucb(features: np.ndarray, utilities: np.ndarray) -> np.ndarray:
    """Solve LinUCB's linear models, one for each policy.

    A = I + sum over i of x_i x_i^T,   b_k = sum over i of u_ik x_i,   theta_k = A^-1 b_k

    Args:
        features: (n, d); row i is x_i, what is known of state i.
        utilities: (n, policies); u_ik is the utility of policy k in state i.

    Returns:
        (d, policies); column k is theta_k.
    """
    raise NotImplementedError


answer = fit_linucb'''


def fit_linucb(features: np.ndarray, utilities: np.ndarray) -> np.ndarray:
    """Solve LinUCB's linear models, one for each policy."""
    gram = np.eye(features.shape[1]) + features.T @ features  # (d, d)
    return np.linalg.solve(gram, features.T @ utilities)


def fit_without_prior(features: np.ndarray, utilities: np.ndarray) -> np.ndarray:
    """The mistake: least squares, which a feature that was hardly ever seen leads astray."""
    return np.linalg.lstsq(features, utilities, rcond=None)[0]


def _check_linucb(answer) -> bool | str:
    """Checks a function that fits the linear models of LinUCB: on one state, on states that share nothing, and on
    random ones.

    Args:
        answer: The student's solution, from features (n, d) and utilities (n, policies) to weights (policies, d).

    Returns:
        True, or what is wrong.
    """
    one_state = np.asarray(answer(np.array([[2.0, 0.0]]), np.array([[1.0, 0.5]])))
    if one_state.shape != (2, 2):
        return f"2 features and 2 policies need shape (2, 2), got {one_state.shape}"
    if not np.allclose(one_state, [[0.4, 0.2], [0.0, 0.0]]):
        return "x = (2, 0) and u = (1, 0.5) give A = diag(5, 1), so theta = (0.4, 0) and (0.2, 0)"
    rng = seeds.rng("exercise", "LinUCB")
    for num_states, num_features, num_policies in ((3, 5, 2), (40, 5, 3)):
        features = rng.normal(size=(num_states, num_features))
        utilities = rng.normal(size=(num_states, num_policies))
        expected = fit_linucb(features, utilities)
        theta = np.asarray(answer(features, utilities))
        if theta.shape != expected.shape or not np.allclose(theta, expected):
            return f"features of shape {features.shape} are solved by another theta"
    return True


# A decision model ---------------------------------------------------------------------------------

STUB_OF_MODEL = '''from collections.abc import Sequence

from lib.orchestration.contexts import DecisionContext
from lib.orchestration.decision_model import Decision, NumericModel


class OwnModel(NumericModel):
    """Decides for a batch of students."""

    name = "mine"

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Decide for every student.

        Args:
            contexts: One per student, as RO sees it: `state.features`, `last_policy`, and `tool_results`, one for each
                policy on the menu `policies`.

        Returns:
            A decision for each; `choose_surely(index, 3)` of `lib.orchestration.decision_model` picks the policy with
            this index on the menu.
        """
        raise NotImplementedError


answer = OwnModel()'''


class MostProgress(NumericModel):
    """Picks the policy that raised mastery most on copies of the student."""

    name = "most progress"

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Chooses the policy with the most progress in its simulation.

        Args:
            contexts: The situation of each episode, with the simulated results of all policies.

        Returns:
            A decision per episode.
        """
        decisions = []
        for context in contexts:
            # The last criterion of students is progress.
            progress = [result.results[-1] for result in context.tool_results]
            best = int(np.argmax(progress))
            decisions.append(choose_surely(best, len(context.policies)))
        return decisions


def play_students(model: DecisionModel, settings: Params, zoo: str | Path | None = None) -> float:
    """Let a decision model teach the students of the lesson's world "speed", with the context of RO.

    Args:
        model: Who decides.
        settings: All settings.
        zoo: Folder of the trained policies; None for those of lesson 01.

    Returns:
        Mean steps of an episode.
    """
    zoo = ensure_zoo(settings, ["education"], zoo)
    orchestration = settings.orchestration
    lengths = []
    for seed in range(settings.zoo.seeds):
        menu = make_menu({"policies": SINGLE}, "education", seed, zoo)
        episode_sets = make_episode_sets(
            settings, orchestration, "education", "speed", seed, menu, orchestration.students
        )
        options = SystemOptions("RO", rollout_steps=orchestration.lookahead)
        lengths += episode_sets["test"].play(model, options).episodes["length"].tolist()
    return float(np.mean(lengths))


def _raise_if_unwritten(model: DecisionModel) -> None:
    """Raises NotImplementedError for a stub. Any other error would not come up with students."""
    try:
        model.decide([])
    except NotImplementedError:
        raise
    except Exception:
        return


def _needs_fewer_steps(answer, settings: Params, zoo: str | Path | None = None) -> bool | str:
    """Checks that episodes end earlier than with random decisions.

    Args:
        answer: The student's solution, a decision model.
        settings: Settings of the environment.
        zoo: Folder of the policies; None for the usual one.

    Returns:
        True, or what is wrong.
    """
    _raise_if_unwritten(answer)  # before policies are trained for it
    length = play_students(answer, settings, zoo)
    random_length = play_students(RandomModel(), settings, zoo)
    if length < random_length:
        return True
    return f"{length:.1f} steps, random needs {random_length:.1f}"


EXERCISES = Exercises(
    Exercise(
        "02.1",
        "easy",
        5,
        "RO decides 20 times in an episode, with two replies each, 700 tokens in and 60 out per reply, at Claude's "
        "price of Table 8. Dollars per episode?",
        nudge="a look-ahead is asked for in one reply and read in another",
        hint="40 replies, each with its tokens in and out",
        answer=cost_ledger.llm_cost(40, 700, 60, CLAUDE),
        worked="40 x (700 x 3e-6 + 60 x 15e-6): the look-ahead doubles the bill, because its result is a second reply.",
        wrong=cost_ledger.llm_cost(20, 700, 60, CLAUDE),
        tolerance=0.001,
    ),
    Exercise(
        "02.2",
        "medium",
        10,
        "Prompt assembly, the paper's function $A(c_1, \\ldots, c_n)$: every component of Table 1 has rendered its "
        "section. Write the function that joins the sections into messages for a chat model.",
        nudge="how many messages does a prompt have whose sections are all the user's?",
        hint="for each role in turn, select the texts of its sections and join them; without a text, no message",
        answer=assemble_prompt,
        worked="One pass per role keeps the order inside a message. What a system knows is decided before, by which "
        "components have a section.",
        wrong=assemble_in_one_message,
        important=True,
        judge=_check_assembly,
        start=STUB_OF_ASSEMBLY,
    ),
    Exercise(
        "02.3",
        "medium",
        8,
        "Two policies are equally good. A look-ahead on fresh random numbers shows each of them a number from a "
        "standard normal distribution, and you pick the higher one. What do you expect of the number that you picked, "
        "and what will the step really bring above the mean? Answer with a pair; a few lines of NumPy will do.",
        nudge="the look-ahead and the step draw their random numbers apart",
        hint="draw many pairs of numbers and look at the larger ones; then ask what they say about the step itself",
        answer=(1 / math.sqrt(math.pi), 0.0),
        worked="The larger of two standard normals has the mean 1 / sqrt(pi). None of it comes true: with fresh "
        "numbers the choice is as good as a random one. Had the look-ahead shared the environment's numbers, all of it "
        "would.",
        wrong=(0.0, 0.0),
        important=True,
        tolerance=0.02,
    ),
    Exercise(
        "02.4",
        "medium",
        12,
        "LinUCB (Li et al. 2010) without exploration: write the solution of its linear models. All policies are tried "
        "in every training state, so that one matrix $A$ serves all of them.",
        nudge="the sums over states are products of matrices",
        hint="features.T @ features sums x_i x_i^T over states; which product has all b_k as its columns?",
        answer=fit_linucb,
        worked="It is ridge regression with penalty 1. The identity keeps a feature that was hardly ever seen from "
        "getting a large weight.",
        wrong=fit_without_prior,
        judge=_check_linucb,
        start=STUB_OF_LINUCB,
    ),
    Exercise(
        "02.5",
        "hard",
        20,
        "Write a decision model that needs fewer steps than *random* on the students of this lesson. It plays the same "
        "students as everybody above, with the context of RO. Policies on the menu are SO-d1 (aptitude), SO-d2 (gap) "
        "and SO-d3 (performance); the results of a tool call are aptitude, gap, performance and progress.",
        nudge="always picking one policy is slower than random; why?",
        hint="each tool result says how far copies of this student came; follow the one that came furthest",
        answer=MostProgress(),
        worked="A few steps on copies show which policy raises mastery now. No single policy does so all the time: "
        "hard questions leave failed ones behind, and reviewing those pays only while there are some.",
        wrong=ConstantModel("SO-d3"),
        judge=_needs_fewer_steps,
        needs=("settings",),
        start=STUB_OF_MODEL,
    ),
)
check = EXERCISES.check

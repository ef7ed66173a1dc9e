"""The experts of a run: which models, what a call to each costs, and what all calls may cost at the most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib import config
from lib.config import LLMSettings, Params, ParamsError
from lib.language_models.local_models import fill_in_lab_prices
from lib.llm.cost_estimate import PlannedCalls, announce_costs, take_most_expensive
from lib.llm.errors import InfrastructureError
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl.expert_pool import ExpertPool, ExpertQuery, derive_reply_seed
from lib.tasks import Item

TRIAL_QUESTIONS = 8  # that every expert is asked first, to know what its calls cost
JUDGE = "judge:"  # a scorer that is a language model of llm.models
# Of a judge's instructions, and of an answer that it reads, beside question and reference.
JUDGE_TOKENS = 600
# Tokens per second of an expert that says nothing of its time, declared as in lesson 06.
DECLARED_TOKENS_PER_SECOND = 50.0
_MODELS = "llm.models."


@dataclass(frozen=True)
class CallCost:
    """What one call to an expert takes, on average over the trial questions.

    Attributes:
        cost_usd: As billed.
        seconds: Between request and reply.
        seconds_per_token: Of the reply's tokens.
        is_measured: Whether the seconds were measured; else they are declared.
    """

    cost_usd: float
    seconds: float
    seconds_per_token: float
    is_measured: bool


def change_params(params: Params, section: str, changes: Sequence[str]) -> Params:
    """Applies the changes of a command line to all parameters.

    Args:
        params: Settings of a profile.
        section: The system's, which the keys of the changes are in.
        changes: KEY=VALUE each; `llm.models.NAME={...}` adds a model or changes one.

    Returns:
        The parameters, validated.

    Raises:
        ParamsError: A key or a value that cannot be.
    """
    content = params.model_dump()
    model_changes = [change for change in changes if change.startswith(_MODELS)]
    settings_changes = [change for change in changes if not change.startswith(_MODELS)]
    for change in model_changes:
        _change_model(content["llm"]["models"], change)
    content[section] = config.apply_changes(section, content[section], settings_changes)
    return config.validate_settings(content, Params, "with --set")


def _change_model(models: dict[str, Any], change: str) -> None:
    """Adds or changes the settings of a model by an option of the command line.

    Args:
        models: Settings by name, which are changed.
        change: "llm.models.NAME={...}" with YAML; what is not given is taken from the common settings.

    Raises:
        ParamsError: The value is no mapping in YAML.
    """
    key, _, text = change.partition("=")
    name = key.removeprefix(_MODELS)
    try:
        values = config.from_yaml(text)
    except ValueError as error:
        raise ParamsError(f"--set {key}: the value is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ParamsError(f"--set {key}: write {{backend: ..., model: ..., price_in: ...}}")
    common = config.read_params_file()["llm"]["common"]
    models[name] = {**common, **models.get(name, {}), **values}


def check_names(llm: LLMSettings, names: Sequence[str]) -> None:
    """Raise ParamsError for a name that is not in llm.models."""
    unknown = [name for name in names if name not in llm.models]
    if unknown:
        raise ParamsError(
            f"there is no model {unknown[0]!r}; llm.models has {', '.join(llm.models)}; add it there or by --set"
        )


def select_models(llm: LLMSettings, names: Sequence[str]) -> LLMSettings:
    """The settings with these models alone; lab models, which need `make repro` first, cost what their cards say.

    Args:
        llm: The models that there are.
        names: Names of llm.models.

    Returns:
        The settings.

    Raises:
        ModelError: For a lab model that was never measured.
    """
    selected = {name: llm.models[name] for name in names}
    return fill_in_lab_prices(llm.model_copy(update={"models": selected}))


def list_judges(scorer: str) -> list[str]:
    """The models of llm.models that a scorer asks."""
    return [scorer.removeprefix(JUDGE)] if scorer.startswith(JUDGE) else []


def measure_calls(pool: ExpertPool, items: Sequence[Item]) -> dict[str, CallCost]:
    """Measures what a call to each expert costs, by asking each of them a few of the questions.

    Args:
        pool: The experts. What endpoints reply here is recorded and never paid for again.
        items: The questions.

    Returns:
        By expert, the cheapest first.

    Raises:
        InfrastructureError: Where no call to an expert came back.
    """
    trial_items = items[:TRIAL_QUESTIONS]
    costs = {}
    for expert in pool.model_names:
        queries = [
            ExpertQuery(expert, item.prompt, derive_reply_seed(item.prompt), item.history)
            for item in trial_items
        ]
        replies = [reply for reply in pool.ask(queries) if not reply.lost]
        if not replies:
            raise InfrastructureError(
                f"{expert}: none of {len(queries)} trial calls came back; check its server and run again"
            )
        cost_usd = float(np.mean([reply.cost_usd for reply in replies]))
        seconds = float(np.mean([reply.seconds for reply in replies]))
        # At least one token, since seconds are divided by it.
        tokens = max(float(np.mean([reply.tokens_out for reply in replies])), 1.0)
        # A lab model answers in no time that a clock could measure; its tokens stand for the seconds.
        is_measured = seconds > 0
        if not is_measured:
            seconds = tokens / DECLARED_TOKENS_PER_SECOND
        costs[expert] = CallCost(cost_usd, seconds, seconds / tokens, is_measured)
    return dict(sorted(costs.items(), key=lambda entry: entry[1].cost_usd))


@dataclass(frozen=True)
class CallPlan:
    """How many calls a run makes at the most.

    Attributes:
        episodes: Of training and evaluation together.
        calls_per_episode: Of the controller to experts.
        baseline_questions: That every expert is asked by itself.
        query_tokens: Tokens of a query that the controller writes.
    """

    episodes: int
    calls_per_episode: int
    baseline_questions: int
    query_tokens: int


def announce_plan(
    llm: LLMSettings,
    experts: Mapping[str, str],
    judges: Sequence[str],
    items: Sequence[Item],
    plan: CallPlan,
) -> str:
    """Describes how many calls a run makes at the most, and what they may cost.

    Args:
        llm: With the prices.
        experts: Names in llm.models by the controller's word.
        judges: Names in llm.models of those that grade every answer.
        items: The questions, whose lengths are counted.
        plan: What is to be done.

    Returns:
        A sentence for the terminal.
    """
    question_tokens = np.mean([_count_question_tokens(item) for item in items])
    # The question as it stands or one that the controller writes, whichever is longer.
    prompt_tokens = max(question_tokens, plan.query_tokens)
    num_calls = plan.episodes * plan.calls_per_episode
    alternatives = [
        _plan_calls(llm, name, num_calls, prompt_tokens) for name in dict.fromkeys(experts.values())
    ]
    # Every call may go to the same expert, but to one only.
    planned = [take_most_expensive(llm, alternatives)]

    num_trials = min(TRIAL_QUESTIONS, len(items)) + plan.baseline_questions
    for name in experts.values():
        planned.append(_plan_calls(llm, name, num_trials, question_tokens))
    num_answers = plan.episodes + plan.baseline_questions * (len(experts) + 1)
    for name in judges:
        planned.append(_plan_calls(llm, name, num_answers, question_tokens + JUDGE_TOKENS))
    return announce_costs(llm, planned)


def _plan_calls(llm: LLMSettings, name: str, num_calls: int, prompt_tokens: float) -> PlannedCalls:
    tokens_out = num_calls * llm.models[name].max_tokens
    return PlannedCalls(name, num_calls, round(num_calls * prompt_tokens), tokens_out)


def _count_question_tokens(item: Item) -> int:
    return estimate_tokens(sum(count_bytes(message["content"]) for message in item.messages))

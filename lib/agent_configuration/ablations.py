"""Ablations of ARC: the objective (Table 4), imitating the best, the masks, the discount, the reward, the encoder."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.agent_configuration import experiment
from lib.agent_configuration.variants import ARC, GRPO, SPARSE, UNDISCOUNTED, UNMASKED
from lib.config import ConfigurationSettings, Params
from lib.stats.ablation_comparison import Comparison, Measure

REWARD = Measure("reward", "reward")
ACCURACY = Measure("correct", "accuracy")
TOKENS = Measure("tokens_out", "tokens", "lower")
MEASURES = (REWARD, ACCURACY, TOKENS)
ABLATED = (ARC, GRPO, UNMASKED, UNDISCOUNTED, SPARSE)


def tests(params: Params, **folders) -> pd.DataFrame:
    """Test every ablated variant, and ARC with the other encoder, on the kind that each policy learned from.

    Args:
        params: `ablations.encoder` names the other encoder.
        **folders: models and runs, as of `experiment.train_policies`.

    Returns:
        Rows as of `AgentConfigurationResults.tests`, with encoder and unit (the question).
    """
    settings = params.configuration
    label = "training under other objectives"
    tests_of_variants = experiment.train_policies(params, ABLATED, label=label, **folders)
    usual_rows = _select_own_kind(tests_of_variants, settings.model, settings.encoder)
    other_encoder = params.ablations.encoder
    if other_encoder == settings.encoder:
        return usual_rows
    other_settings = ConfigurationSettings(**settings.model_dump() | {"encoder": other_encoder})
    other_params = params.model_copy(update={"configuration": other_settings})
    label = "training with another encoder"
    tests_of_arc = experiment.train_policies(other_params, [ARC], label=label, **folders)
    other_rows = _select_own_kind(tests_of_arc, settings.model, other_encoder)
    return pd.concat([usual_rows, other_rows])


def _select_own_kind(tests: pd.DataFrame, model: str, encoder: str) -> pd.DataFrame:
    """Select the tests with a model's agents, of policies on the kind that they learned from."""
    rows = tests[(tests["model"] == model) & (tests["only"] == tests["group"])]
    unit = rows["group"].astype(str) + "/" + rows["prompt"].astype(str)
    return rows.assign(encoder=encoder, unit=unit)


def table_4(params: Params, rows: pd.DataFrame) -> Comparison:
    """PPO or GRPO, and afterwards nothing, SFT on the elite, or DPO on pairs."""
    labels = {
        "arc_no_sft": "PPO",
        "grpo_no_sft": "GRPO",
        "arc": "PPO, then SFT",
        "arc_dpo": "PPO, then DPO",
    }
    return _compare(params, "arc_training", "the training objective", rows, labels, "PPO")


def sft(params: Params, rows: pd.DataFrame) -> Comparison:
    """Imitating the elite or not, with masks and without."""
    labels = {
        "arc_no_sft": "no SFT",
        "arc": "SFT",
        "unmasked_no_sft": "no masks, no SFT",
        "unmasked": "no masks, SFT",
    }
    references = {"SFT": "no SFT", "no masks, SFT": "no masks, no SFT"}
    return _compare(params, "arc_sft", "imitating the best episodes", rows, labels, references)


def masks(params: Params, rows: pd.DataFrame) -> Comparison:
    """The mask pins what a workflow has no agent for; without it the policy chooses that too, to no effect."""
    labels = {"arc": "masks", "unmasked": "no masks"}
    return _compare(params, "arc_masks", "masks", rows, labels, "masks")


def discount(params: Params, rows: pd.DataFrame) -> Comparison:
    """gamma = .95, as in the paper's appendix, or 1, as in its section 3.1."""
    labels = {"arc": "discount", "undiscounted": "no discount"}
    return _compare(params, "arc_discount", "the discount", rows, labels, "discount")


def reward(params: Params, rows: pd.DataFrame) -> Comparison:
    """The shaped reward of eq. 3 and 4, or correctness alone."""
    labels = {"arc": "shaped reward", "sparse": "sparse reward"}
    return _compare(params, "arc_reward", "the reward", rows, labels, "shaped reward")


def encoders(params: Params, rows: pd.DataFrame) -> Comparison:
    """The encoder of questions: the usual one, or another."""
    arc_rows = rows[rows["method"] == "arc"]
    arc_rows = arc_rows.assign(variant=arc_rows["encoder"])
    usual_encoder = params.configuration.encoder
    references = {}
    for encoder in dict.fromkeys(arc_rows["variant"]):
        if encoder != usual_encoder:
            references[encoder] = usual_encoder
    return _make_comparison(
        params, "arc_encoders", "the encoder of questions", arc_rows, references
    )


def _compare(
    params: Params,
    name: str,
    about: str,
    rows: pd.DataFrame,
    labels: Mapping[str, str],
    references: str | Mapping[str, str],
) -> Comparison:
    """Compare methods under the usual encoder.

    Args:
        params: All settings.
        name: Name of the comparison.
        about: What is varied.
        rows: What `tests` returned.
        labels: What tables call each method, in their order.
        references: The label that all others are compared with, or for each label the one that it is compared with.

    Returns:
        The comparison.
    """
    usual_rows = rows[rows["encoder"] == params.configuration.encoder]
    tables = []
    for method, label in labels.items():
        tables.append(usual_rows[usual_rows["method"] == method].assign(variant=label))
    if isinstance(references, str):
        references = {label: references for label in labels.values() if label != references}
    return _make_comparison(params, name, about, pd.concat(tables), references)


def _make_comparison(
    params: Params, name: str, about: str, frame: pd.DataFrame, references: Mapping[str, str]
) -> Comparison:
    backend = params.llm.describe_backend([params.configuration.model])
    return Comparison(name, about, frame, references, MEASURES, backend)

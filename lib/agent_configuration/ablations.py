"""Ablations of ARC: the objective (Table 4), imitating the best, the masks, the discount, the reward, the encoder."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.agent_configuration import experiment, results
from lib.agent_configuration.variants import ARC, GRPO, SPARSE, UNDISCOUNTED, UNMASKED
from lib.config import ConfigurationSettings, Params
from lib.stats.ablation_comparison import Comparison, Measure

REWARD = Measure("reward", "reward")
ACCURACY = Measure("correct", "accuracy")
TOKENS = Measure("tokens_out", "tokens", "lower")
MEASURES = (REWARD, ACCURACY, TOKENS)
ABLATED = (ARC, GRPO, UNMASKED, UNDISCOUNTED, SPARSE)


def tests(params: Params, **folders) -> pd.DataFrame:
    """Train and test every ablated variant, on the kind that each policy learned from.

    Args:
        params: All settings.
        **folders: models and runs, as of `experiment.train_policies`.

    Returns:
        Rows as of `AgentConfigurationResults.tests`, with encoder and unit (the question).
    """
    settings = params.configuration
    label = "training under other objectives"
    rows = experiment.train_policies(params, ABLATED, label=label, **folders)
    return _select_own_kind(rows, settings.model, settings.encoder)


def select_recorded_tests(rows: pd.DataFrame, params: Params) -> pd.DataFrame:
    """Select the tests from the results table of the recorded full run, which has more and longer trainings.

    Args:
        rows: The results table.
        params: The settings of the full run.

    Returns:
        Rows with encoder and unit (the question), as of `tests`.
    """
    is_test = rows["split"] == results.TEST
    is_own_kind = rows["style"] == results.OWN
    tests = rows[is_test & is_own_kind]
    unit = tests["group"].astype(str) + "/" + tests["item"].astype(str)
    return tests.assign(encoder=params.configuration.encoder, unit=unit)


def test_encoders(params: Params, **folders) -> pd.DataFrame:
    """Train and test ARC with the lesson's encoder and with `ablations.encoder`.

    Args:
        params: All settings.
        **folders: models and runs, as of `experiment.train_policies`.

    Returns:
        Rows as of `tests`.
    """
    settings = params.configuration
    tables = []
    for encoder in dict.fromkeys([settings.encoder, params.ablations.encoder]):
        changed_settings = ConfigurationSettings(**settings.model_dump() | {"encoder": encoder})
        changed_params = params.model_copy(update={"configuration": changed_settings})
        label = f"training with the encoder {encoder}"
        rows = experiment.train_policies(changed_params, [ARC], label=label, **folders)
        tables.append(_select_own_kind(rows, settings.model, encoder))
    return pd.concat(tables)


def _select_own_kind(rows: pd.DataFrame, model: str, encoder: str) -> pd.DataFrame:
    """Select the tests with a model's agents, of policies on the kind that they learned from."""
    tests_of_own_kind = rows[(rows["model"] == model) & (rows["only"] == rows["group"])]
    unit = tests_of_own_kind["group"].astype(str) + "/" + tests_of_own_kind["prompt"].astype(str)
    return tests_of_own_kind.assign(encoder=encoder, unit=unit)


def table_4(params: Params, rows: pd.DataFrame) -> Comparison:
    """Compare PPO with GRPO, and PPO with PPO followed by SFT on the elite or by DPO on pairs."""
    labels = {
        "arc_no_sft": "PPO",
        "grpo_no_sft": "GRPO",
        "arc": "PPO, then SFT",
        "arc_dpo": "PPO, then DPO",
    }
    return _compare_methods(params, "arc_training", "the training objective", rows, labels, "PPO")


def sft(params: Params, rows: pd.DataFrame) -> Comparison:
    """Compare imitating the elite or not, with masks and without."""
    labels = {
        "arc_no_sft": "no SFT",
        "arc": "SFT",
        "unmasked_no_sft": "no masks, no SFT",
        "unmasked": "no masks, SFT",
    }
    references = {"SFT": "no SFT", "no masks, SFT": "no masks, no SFT"}
    return _compare_methods(
        params, "arc_sft", "imitating the best episodes", rows, labels, references
    )


def masks(params: Params, rows: pd.DataFrame) -> Comparison:
    """Compare masks or none. A mask pins what a workflow has no agent for; without it the policy chooses that too."""
    labels = {"arc": "masks", "unmasked": "no masks"}
    return _compare_methods(params, "arc_masks", "masks", rows, labels, "masks")


def discount(params: Params, rows: pd.DataFrame) -> Comparison:
    """Compare gamma = .95, as in the paper's appendix, with 1, as in its section 3.1."""
    labels = {"arc": "discount", "undiscounted": "no discount"}
    return _compare_methods(params, "arc_discount", "the discount", rows, labels, "discount")


def reward(params: Params, rows: pd.DataFrame) -> Comparison:
    """Compare the shaped reward of eq. 3 and 4 with correctness alone."""
    labels = {"arc": "shaped reward", "sparse": "sparse reward"}
    return _compare_methods(params, "arc_reward", "the reward", rows, labels, "shaped reward")


def encoders(params: Params, rows: pd.DataFrame) -> Comparison:
    """Compare encoders of questions: the usual one with each other one.

    Args:
        params: All settings.
        rows: What `test_encoders` returned.

    Returns:
        The comparison.
    """
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


def _compare_methods(
    params: Params,
    name: str,
    about: str,
    rows: pd.DataFrame,
    labels: Mapping[str, str],
    references: str | Mapping[str, str],
) -> Comparison:
    """Compare methods whose policies read questions by the usual encoder.

    Args:
        params: All settings.
        name: Name of the comparison.
        about: What is varied.
        rows: What `tests` returned.
        labels: By method, in the order of the table.
        references: The label that all others are compared with, or one for each.

    Returns:
        The comparison.
    """
    usual_rows = rows[rows["encoder"] == params.configuration.encoder]
    tables = []
    for method, label in labels.items():
        tables.append(usual_rows[usual_rows["method"] == method].assign(variant=label))
    if isinstance(references, str):
        other_labels = [label for label in labels.values() if label != references]
        references = dict.fromkeys(other_labels, references)
    return _make_comparison(params, name, about, pd.concat(tables), references)


def _make_comparison(
    params: Params, name: str, about: str, frame: pd.DataFrame, references: Mapping[str, str]
) -> Comparison:
    backend = params.llm.describe_backend([params.configuration.model])
    return Comparison(name, about, frame, references, MEASURES, backend)

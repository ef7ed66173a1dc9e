"""Ablations of ARC: the objective (Table 4), imitating the best, the masks, the encoder of questions."""

import pandas as pd

from lib.agent_configuration import experiment
from lib.agent_configuration.variants import NAMED, UNMASKED
from lib.config import ConfigurationSettings, Params
from lib.stats.ablation_comparison import Comparison, Measure

REWARD = Measure("reward", "reward")
RIGHT = Measure("correct", "accuracy")
TOKENS = Measure("tokens_out", "tokens", "lower")
MEASURES = (REWARD, RIGHT, TOKENS)


def tests(params: Params, **where) -> pd.DataFrame:
    """Test questions under ARC by PPO and by GRPO, without masks, and with the other encoder; every policy as it was
    trained, after SFT, and after DPO. where: of study.trained."""
    own, other = params.configuration, params.ablations.encoder
    arms = [NAMED["arc"], NAMED["grpo"], UNMASKED]
    found = experiment.trained(params, arms, label="training under other objectives", **where)
    found = _on(found, own.model, own.encoder)
    if other == own.encoder:
        return found
    encoded = ConfigurationSettings(**own.model_dump() | {"encoder": other})
    told = params.model_copy(update={"configuration": encoded})
    more = experiment.trained(told, [NAMED["arc"]], label="training with another encoder", **where)
    return pd.concat([found, _on(more, own.model, other)], ignore_index=True)


def _on(found: pd.DataFrame, model: str, encoder: str) -> pd.DataFrame:
    """The tests with a model's agents; unit: the question."""
    found = found[found["model"] == model]
    return found.assign(
        encoder=encoder, unit=found["group"].astype(str) + "/" + found["prompt"].astype(str)
    )


def table_4(params: Params, found: pd.DataFrame) -> Comparison:
    """PPO or GRPO, and afterwards nothing, SFT on the elite, or DPO on pairs."""
    named = {
        "arc_no_sft": "PPO",
        "grpo": "GRPO",
        "arc": "PPO, then SFT",
        "arc_dpo": "PPO, then DPO",
    }
    return _compared(params, "arc_training", "the training objective", found, named, "PPO")


def sft(params: Params, found: pd.DataFrame) -> Comparison:
    """Imitating the elite or not, from either encoder and with masks or without."""
    named = {
        "arc_no_sft": "no SFT",
        "arc": "SFT",
        "unmasked_no_sft": "no masks, no SFT",
        "unmasked": "no masks, SFT",
    }
    against = {"SFT": "no SFT", "no masks, SFT": "no masks, no SFT"}
    return _compared(params, "arc_sft", "imitating the best episodes", found, named, against)


def masks(params: Params, found: pd.DataFrame) -> Comparison:
    """The mask pins what a workflow has no agent for; without it the policy chooses that too, and nothing changes."""
    named = {"arc": "masks", "unmasked": "no masks"}
    return _compared(params, "arc_masks", "masks", found, named, "masks")


def encoders(params: Params, found: pd.DataFrame) -> Comparison:
    """What questions are read with."""
    arc = found[found["method"] == "arc"]
    frame = arc.assign(variant=arc["encoder"])
    usual = params.configuration.encoder
    against = {name: usual for name in dict.fromkeys(frame["variant"]) if name != usual}
    return Comparison(
        "arc_encoders",
        "the encoder of questions",
        frame,
        against,
        MEASURES,
        params.llm.describe_backend([params.configuration.model]),
    )


def _compared(
    params: Params, name: str, about: str, found: pd.DataFrame, named, against
) -> Comparison:
    """Methods under the usual encoder; against: one variant for all others, or one for each."""
    rows = found[(found["encoder"] == params.configuration.encoder) & found["method"].isin(named)]
    frame = pd.concat(
        [rows[rows["method"] == method].assign(variant=shown) for method, shown in named.items()]
    )
    if isinstance(against, str):
        against = {shown: against for shown in named.values() if shown != against}
    return Comparison(
        name,
        about,
        frame,
        against,
        MEASURES,
        params.llm.describe_backend([params.configuration.model]),
    )

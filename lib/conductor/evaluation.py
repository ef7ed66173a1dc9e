"""How good a policy is: a verifier per category on test items, and what the five rewards measure on its replies.

Several replies are sampled to every item, at the temperature of training, and scored by the verifier. A story, of which
many are right, counts only the first time that it is written: a policy that tells the same good story in every sample
scores 1 / samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from lib import tasks
from lib.conductor.data import get_category
from lib.conductor.policy_readout import (
    PolicyReadout,
    read_rollouts,
    write_likelihood_prefix,
    write_likelihood_target,
)
from lib.conductor.reply_format import is_well_formed
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import COMPONENTS, compute_length_reward
from lib.conductor.weighting import Weighting
from lib.config import RewardSettings
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode, encode
from lib.language_models.training.training_data import write_question
from lib.tasks import Item

VERSION = 2  # of the scores of replies and what the rewards measure on them
COUNTED_ONCE = ("story",)  # categories in which a repeated reply scores 0


@dataclass(frozen=True)
class ItemReply:
    """One reply to an item.

    Attributes:
        item: The question.
        text: The reply, with what it was made to begin with.
        ids: Its tokens.
        prompt: Tokens of the question.
    """

    item: Item
    text: str
    ids: tuple[int, ...]
    prompt: tuple[int, ...]


@dataclass(frozen=True)
class SamplingSettings:
    """How replies are sampled in a test.

    Attributes:
        samples: Replies per item.
        temperature: 0 for greedy decoding.
        max_tokens: Largest number of tokens of a reply.
        prefix: What every reply is made to begin with.
    """

    samples: int
    temperature: float
    max_tokens: int
    prefix: str = ""


def sample_replies(
    model: PreTrainedModel, items: Sequence[Item], sampling: SamplingSettings, seed: int
) -> list[ItemReply]:
    """Sample replies to test items.

    Args:
        model: The policy, a lab model.
        items: The questions.
        sampling: How many replies, and how.
        seed: Seed of the random numbers.

    Returns:
        The replies, those to one item side by side.
    """
    num_samples = sampling.samples
    first_stream = seed * len(items) * num_samples
    prefix = tuple(encode(sampling.prefix)) if sampling.prefix else ()
    replies, prompts = [], []
    for i, item in enumerate(items):
        question = tuple(encode_conversation(write_question(item)))
        for j in range(num_samples):
            # A stream of its own for every reply: none depends on how many are sampled beside it.
            stream = first_stream + i * num_samples + j
            prompts.append(
                Prompt((*question, *prefix), sampling.max_tokens, sampling.temperature, stream)
            )
            replies.append((item, question))

    generations = generate(Forward(model), prompts, encode_special(EOS))
    return [
        ItemReply(
            item,
            decode([*prefix, *generation.reply_ids]),
            (*prefix, *generation.ids),
            question,
        )
        for (item, question), generation in zip(replies, generations, strict=True)
    ]


def score_items(replies: Sequence[ItemReply], samples: int) -> pd.DataFrame:
    """Score every item by its replies.

    Args:
        replies: What `sample_replies` returned.
        samples: Replies per item.

    Returns:
        One row per item: group (category), item (number), correct (mean score of the replies; a repeated story counts
        0), verified (mean score by the verifier alone), novel (fraction of replies that repeat no earlier one),
        tokens_out, well_formed.
    """
    rows = []
    for number in range(len(replies) // samples):
        item_replies = replies[number * samples : (number + 1) * samples]
        category = get_category(item_replies[0].item)
        texts = [reply.text for reply in item_replies]
        verified = np.array([tasks.score_reply(reply.item, reply.text) for reply in item_replies])
        # A policy that writes one good story for every prompt would otherwise score full marks.
        is_first = np.array([text not in texts[:j] for j, text in enumerate(texts)])
        scores = verified * is_first if category in COUNTED_ONCE else verified
        rows.append(
            {
                "group": category,
                "item": number,
                "correct": float(scores.mean()),
                "verified": float(verified.mean()),
                "novel": float(is_first.mean()),
                "tokens_out": float(np.mean([len(reply.ids) for reply in item_replies])),
                "well_formed": float(np.mean([is_well_formed(text) for text in texts])),
            }
        )
    return pd.DataFrame(rows)


def measure_rewards(
    model: PreTrainedModel,
    replies: Sequence[ItemReply],
    preference: PreferenceReward,
    settings: RewardSettings,
    weighting: Weighting | None,
    layer: str,
    head_input: str,
) -> pd.DataFrame:
    """Measure all rewards on the first reply to each item.

    Args:
        model: The policy.
        replies: What `sample_replies` returned.
        preference: The reward model.
        settings: Settings of the rewards.
        weighting: Weighting of the training; None where there was none.
        layer: Layer of the states that the weighting reads.
        head_input: What those states hold.

    Returns:
        One row per reply: group (category), the five by name (ppl and ent in nats), prompt, reference and reply as
        text, verified (score by the verifier), has_thought, and the mean weights w_NAME where there is a weighting.
    """
    readout = read_replies(model, replies, layer, head_input)
    texts = [reply.text for reply in replies]
    limits = settings.min_length, settings.max_length
    questions = [write_question(reply.item) for reply in replies]
    frame = pd.DataFrame(
        {
            "group": [get_category(reply.item) for reply in replies],
            "fmt": [float(is_well_formed(text, settings.require_thought)) for text in texts],
            "ppl": readout.likelihood.tolist(),
            "ent": readout.entropy.tolist(),
            "len": [compute_length_reward(len(reply.ids), *limits) for reply in replies],
            "pref": preference(questions, texts),
            "prompt": [reply.item.prompt for reply in replies],
            "reference": [reply.item.reference for reply in replies],
            "reply": texts,
            "verified": [tasks.score_reply(reply.item, reply.text) for reply in replies],
            "has_thought": ["<think>" in text for text in texts],
        }
    )
    if weighting is not None:
        with torch.no_grad():
            # (K, B): a column of the table per reward.
            columns = weighting.compute_mean_weights(readout.h).T.numpy()
        by_name = dict(zip(weighting.names, columns, strict=True))
        # Rewards that a fixed mix does not name count nothing.
        zeros = np.zeros(len(frame), np.float32)
        for name in COMPONENTS:
            frame[f"w_{name}"] = by_name.get(name, zeros)
    return frame


def read_replies(
    model: PreTrainedModel,
    replies: Sequence[ItemReply],
    layer: str = "last",
    head_input: str = "both",
) -> PolicyReadout:
    """Compute hidden states, entropies and reference likelihoods of replies under the policy's network.

    Args:
        model: The policy.
        replies: B replies to items.
        layer: Layer of the hidden states: first, middle or last.
        head_input: Whose state is taken: both (prompt and reply), prompt, or shuffled.

    Returns:
        One row per reply.
    """
    prefixes = [write_likelihood_prefix(reply.text) for reply in replies]
    return read_rollouts(
        model,
        [reply.prompt for reply in replies],
        [reply.ids for reply in replies],
        [None if prefix is None else encode(prefix) for prefix in prefixes],
        [encode(write_likelihood_target(reply.item.reference)) for reply in replies],
        layer,
        head_input,
    )

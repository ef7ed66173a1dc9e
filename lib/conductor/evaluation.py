"""How good a policy is: a verifier per category on test items, and what the five rewards say of its replies.

Several replies are drawn to every item, at the temperature of training. A reply counts what the verifier
gives it. For stories, of which many are right, it counts only the first time that it is said: a policy
that tells one good story to everybody scores 1 / samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from lib import tasks
from lib.conductor.data import THOUGHTFUL, category
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import COMPONENTS, after_answer, brevity, read, until_answer, well_formed
from lib.conductor.weighting import Weighting
from lib.config import RewardSettings
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode, encode
from lib.language_models.training.training_data import write_question
from lib.tasks import Item

VERSION = 1  # of the scores of replies and what the rewards say of them
NOVEL = ("story",)  # categories in which saying the same again counts nothing


@dataclass(frozen=True)
class ItemReply:
    """One reply to an item: its text, its tokens, its prompt's tokens."""

    item: Item
    text: str
    ids: tuple[int, ...]
    prompt: tuple[int, ...]


def replies(
    model: PreTrainedModel,
    items: Sequence[Item],
    samples: int,
    temperature: float,
    limit: int,
    seed: int,
    begin: str = "",
) -> list[ItemReply]:
    """`samples` replies to each item, one after another; begin: what each is made to begin with, where thoughts were
    taught."""
    starts = [
        tuple(encode(begin)) if begin and category(item) in THOUGHTFUL else () for item in items
    ]
    asked = [tuple(encode_conversation(write_question(item))) for item in items]
    first = seed * len(items) * samples
    wanted = [
        Prompt((*ids, *start), limit, temperature, first + i * samples + j)
        for i, (ids, start) in enumerate(zip(asked, starts, strict=True))
        for j in range(samples)
    ]
    made = generate(Forward(model), wanted, encode_special(EOS))
    rows = [row for row in zip(items, asked, starts, strict=True) for _ in range(samples)]
    return [
        ItemReply(item, decode([*start, *one.reply_ids]), (*start, *one.ids), ids)
        for (item, ids, start), one in zip(rows, made, strict=True)
    ]


def scores(given: Sequence[ItemReply], samples: int) -> pd.DataFrame:
    """One row per item: group (category), item (number), correct (mean score of the replies: right and,
    where stories are asked for, new), verified (mean verifier score), novel (fraction of replies written for the first
    time), tokens_out, well_formed."""
    rows = []
    for number in range(len(given) // samples):
        group = given[number * samples : (number + 1) * samples]
        name, texts = category(group[0].item), [reply.text for reply in group]
        verified = np.array([tasks.score_reply(reply.item, reply.text) for reply in group])
        first = np.array([text not in texts[:j] for j, text in enumerate(texts)])
        rows.append(
            {
                "group": name,
                "item": number,
                "correct": float((verified * first if name in NOVEL else verified).mean()),
                "verified": float(verified.mean()),
                "novel": float(first.mean()),
                "tokens_out": float(np.mean([len(reply.ids) for reply in group])),
                "well_formed": float(np.mean([well_formed(text) for text in texts])),
            }
        )
    return pd.DataFrame(rows)


def components(
    model: PreTrainedModel,
    given: Sequence[ItemReply],
    preference: PreferenceReward,
    settings: RewardSettings,
    weighting: Weighting | None,
    layer: str,
    sees: str,
) -> pd.DataFrame:
    """What the rewards measure on replies, one row each.

    Columns: group (category), the five by name (ppl and ent in nats), prompt, reference and reply as text, verified
    (by the verifier), thinks (whether there is a thought), and the mean weights `w_...` where there is a weighting.
    """
    told = [encode(until_answer(reply.text)) for reply in given]
    wanted = [encode(after_answer(reply.item.reference)) for reply in given]
    reading = read(
        model, [r.prompt for r in given], [r.ids for r in given], told, wanted, layer, sees
    )
    columns = {
        "fmt": [float(well_formed(reply.text, settings.think)) for reply in given],
        "ppl": reading.likelihood.tolist(),
        "ent": reading.entropy.tolist(),
        "len": [brevity(len(reply.ids), settings.shortest, settings.longest) for reply in given],
        "pref": preference(
            [write_question(reply.item) for reply in given], [reply.text for reply in given]
        ),
    }
    frame = pd.DataFrame({"group": [category(reply.item) for reply in given]} | columns)
    frame[["prompt", "reference", "reply"]] = [
        (r.item.prompt, r.item.reference, r.text) for r in given
    ]
    frame["verified"] = [tasks.score_reply(reply.item, reply.text) for reply in given]
    frame["thinks"] = ["<think>" in reply.text for reply in given]
    if weighting is not None:
        with torch.no_grad():
            given_to = dict(
                zip(weighting.names, weighting.settled(reading.h).T.numpy(), strict=True)
            )
        frame[[f"w_{name}" for name in COMPONENTS]] = np.stack(
            [given_to.get(name, np.zeros(len(frame), np.float32)) for name in COMPONENTS], 1
        )
    return frame

"""Accept the released weights under recipes that are written another way, after showing that nothing else changed.

The card of a released model (data/lab/NAME.json) holds the recipe that its weights were trained by. Where the form of
a recipe changes, and no number, the weights need no new training: this script lets the code before and after the
change answer the same prompts with the same weights, and writes the new recipes only where every output is the same
to the byte. What a *training* gives is compared by tests/golden, which runs one.

    PYTHONPATH=/path/to/checkout/before python scripts/accept_weights.py record before.json
    PYTHONPATH=. python scripts/accept_weights.py accept before.json
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch

from lib import config, tasks
from lib.experiment import seeds
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS
from lib.language_models.training import agent_traces, decision_traces, released_weights
from lib.language_models.training.training_data import TRACE_WRITERS, write_question

assert (
    decision_traces.FAMILY in tasks.FAMILIES
)  # its import registers a family that one model is taught
PROMPTS_PER_MODEL = 40
MAX_TOKENS = 24


def make_prompts(model_settings) -> list[tuple[int, ...]]:
    """Prompts of everything that a model is taught: plain questions, and first turns of agents' traces."""
    components = [
        component for component in model_settings.data_mixture if component.style != "brief"
    ]
    num_each = -(-PROMPTS_PER_MODEL // len(components))
    prompts = []
    for component in components:
        items = tasks.draw_items(
            component.family, "test", num_each, component.difficulties, component.skin, seed=31
        )
        if component.style == "plain":
            prompts += [tuple(encode_conversation(write_question(item))) for item in items]
            continue
        rng = seeds.rng("scripts", "accept weights", component.family, component.style)
        turns = [
            agent_traces.get_first_turn(*TRACE_WRITERS[component.style](item, rng))
            for item in items
        ]
        prompts += [tuple(encode_conversation(turn.messages, turn.tools)) for turn in turns]
    return prompts


def hash_outputs(name: str, model_settings) -> list[str]:
    """One hash per prompt: of the sampled tokens and the bytes of their log-probabilities."""
    model = released_weights.unpack(name, model_settings)
    prompts = [
        Prompt(ids, MAX_TOKENS, 1.0, seed) for seed, ids in enumerate(make_prompts(model_settings))
    ]
    replies = generate(Forward(model), prompts, encode_special(EOS))
    hashes = []
    for reply in replies:
        log_probabilities = np.asarray(reply.logprobs, dtype=np.float64)
        hashes.append(
            hashlib.sha256(str(list(reply.ids)).encode() + log_probabilities.tobytes()).hexdigest()
        )
    return hashes


def record_outputs() -> dict[str, list[str]]:
    """The hashes of every released model's outputs."""
    torch.set_num_threads(1)
    return {
        name: hash_outputs(name, settings)
        for name, settings in config.load("laptop").lab.models.items()
    }


def accept(recorded: dict[str, list[str]]) -> int:
    """Write the new recipes of the models whose outputs are the same; returns how many are not."""
    from lib.experiment import artifacts
    from lib.language_models.training import (
        build,  # late: code before the change has no recipe of this form
    )

    settings = config.load("laptop").lab
    for (
        name
    ) in settings.models:  # a recipe that was one hash fits nothing, but its card must be readable
        card_path = Path(released_weights.LAB) / f"{name}.json"
        card = artifacts.read_json(card_path)
        if isinstance(card["recipe"], str):
            artifacts.write_json(card_path, card | {"recipe": {"hash": card["recipe"]}})
    num_refused = 0
    for name, hashes in record_outputs().items():
        before = recorded.get(name, [])
        num_equal = sum(old == new for old, new in zip(before, hashes, strict=False))
        same = num_equal == len(hashes) == len(before)
        print(
            f"{name}: {num_equal} of {len(hashes)} outputs are the same bytes{'' if same else ': refused'}"
        )
        num_refused += not same
        if same:
            card_path = Path(released_weights.LAB) / f"{name}.json"
            card = artifacts.read_json(card_path) | {"recipe": build.make_recipe(settings, name)}
            artifacts.write_json(card_path, card)
    return num_refused


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["record", "accept"])
    parser.add_argument("file", type=Path, help="outputs of the code before the change")
    options = parser.parse_args()
    if options.action == "record":
        options.file.write_text(json.dumps(record_outputs(), indent=1), encoding="utf-8")
        return 0
    return min(1, accept(json.loads(options.file.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    sys.exit(main())

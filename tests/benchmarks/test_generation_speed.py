"""What batched generation is worth against transformers' `generate`, with the large model.

Both sides sample from the same prompts to the same limit, no sequence ends before it, and one thread
works. Goals: 64 sequences at once give ten times the tokens a second of transformers one by one, and
more than transformers with the same 64 in a batch, padded on the left as it wants them.
"""

import pytest
import torch

from lib.language_models import checkpoints
from lib.language_models.checkpoints import MODELS
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from tests.benchmarks.clock import seconds
from tests.language_models import tiny

GOAL_ALONE, GOAL_BATCH = 10.0, 1.0
BATCH, LIMIT, ALONE = 64, 96, 4  # ALONE: sequences that are really played one by one
LARGE = {"hidden": 128, "layers": 3, "heads": 4, "intermediate": 320, "window": 512}


pytestmark = pytest.mark.usefixtures("one_thread")


def large():
    """The lab's large model; of the same size, but untrained, where it is not there."""
    folder = MODELS / "lab-large"
    return checkpoints.load(folder) if folder.is_dir() else tiny.model(**LARGE)


@torch.inference_mode()
def theirs(model, prompts) -> int:
    """Tokens that transformers' `generate` writes after a batch of prompts."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    model.generation_config.eos_token_id = None  # no sequence ends before the limit
    out = model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=LIMIT,
        pad_token_id=0,
    )
    assert out.shape == (len(prompts), width + LIMIT)
    return len(prompts) * LIMIT


def ours(forward, prompts) -> int:
    """Tokens that the lab writes; no token ends a turn."""
    results = generate(forward, [Prompt(p, LIMIT, 1.0, seed) for seed, p in enumerate(prompts)], -1)
    assert all(len(result.ids) == LIMIT and result.finish == "length" for result in results)
    return sum(len(result.ids) for result in results)


def rate(write) -> float:
    """Tokens a second; the best of some rounds after one that warms up, all of as many tokens."""
    return write() / seconds(write)


def test_batched_generation_is_many_times_as_fast_as_transformers_one_by_one_and_faster_in_a_batch():
    model, prompts = large(), tiny.prompts(BATCH, longest=80)
    forward = Forward(model)
    batched = rate(lambda: ours(forward, prompts))
    single = rate(lambda: ours(forward, prompts[:1]))
    their_batch = rate(lambda: theirs(model, prompts))
    their_single = rate(lambda: sum(theirs(model, [p]) for p in prompts[:ALONE]))
    print(
        f"\ntokens/s: lab {batched:.0f} with {BATCH} at once, {single:.0f} alone; transformers {their_batch:.0f} with "
        f"{BATCH} at once, {their_single:.0f} one by one: {batched / their_single:.1f}x one by one, "
        f"{batched / their_batch:.2f}x at the same batch size, {single / their_single:.2f}x alone"
    )
    assert batched >= GOAL_ALONE * their_single
    assert batched > GOAL_BATCH * their_batch

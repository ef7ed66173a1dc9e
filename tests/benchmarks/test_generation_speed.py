"""What batched generation is worth against transformers' `generate`, with the large model.

Both sides sample from the same prompts to the same limit, no sequence ends before it, and one thread
works. Goals: 64 sequences at once give ten times the tokens a second of transformers one by one, and
one and a half times those of transformers with the same 64 in a batch, padded on the left as it wants
them.
"""

import pytest
import torch

from lib.language_models import checkpoints
from lib.language_models.checkpoints import MODELS
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from tests.benchmarks.clock import compare, relax, scale
from tests.language_models import tiny

GOAL_ALONE = 10.0  # times the tokens a second of transformers, one sequence at a time
GOAL_BATCH = 1.5  # the same, with as many sequences at once
BATCH = 64  # sequences at once
ALONE = 4  # sequences that are really written one by one
LIMIT = scale(96, least=24)  # tokens of each sequence
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


def test_batched_generation_is_ten_times_as_fast_as_transformers_one_by_one_and_half_again_in_a_batch():
    model, prompts = large(), tiny.prompts(BATCH, longest=80)
    forward = Forward(model)
    goal_alone, goal_batch = relax(GOAL_ALONE), relax(GOAL_BATCH)

    def write_batch():
        ours(forward, prompts)

    def write_one_by_one_with_transformers():
        for prompt in prompts[:ALONE]:
            theirs(model, [prompt])

    alone = compare(
        write_one_by_one_with_transformers,
        write_batch,
        goal_alone,
        units=(ALONE * LIMIT, BATCH * LIMIT),  # tokens
    )
    batch = compare(
        lambda: theirs(model, prompts), write_batch, goal_batch, units=(BATCH * LIMIT,) * 2
    )
    print(
        f"\ntokens/s: lab {1 / alone.fast:.0f} with {BATCH} at once; transformers {1 / batch.slow:.0f} with {BATCH} "
        f"at once, {1 / alone.slow:.0f} one by one: {alone.ratio:.1f}x one by one, "
        f"{batch.ratio:.2f}x at the same batch size"
    )
    assert alone.ratio >= goal_alone
    assert batch.ratio >= goal_batch

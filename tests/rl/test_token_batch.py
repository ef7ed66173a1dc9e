"""Samples become tensors, and what nothing can be learned from is refused where it arises."""

import pytest
import torch

from lib.rl.token_batch import Sample, collate_samples

GOOD = Sample([1, 2], [False, True], 1.0)


def test_a_batch_is_padded_on_the_right_and_its_mask_is_about_the_next_token():
    first = Sample([1, 2, 3], [False, True, False], 0.5, group=7, stratum=1)
    second = Sample([4, 5], [False, True], 1.0, group=3)
    batch = collate_samples([first, second], pad_id=0)
    assert batch.ids.tolist() == [[1, 2, 3], [4, 5, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.mask.tolist() == [[True, False], [True, False]]
    assert batch.rewards.tolist() == [0.5, 1.0] and batch.rewards.dtype == torch.float32
    assert batch.groups == [7, 3] and batch.strata.tolist() == [1, 0]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_that_is_no_number_is_refused_with_the_index_of_its_sample(reward):
    with pytest.raises(ValueError, match=f"sample 2 has the reward {reward}; leave out episodes"):
        collate_samples([GOOD, GOOD, Sample([1, 2], [False, True], reward)], 0)


UNUSABLE = {
    "nothing was written": (Sample([1, 2, 3], [False] * 3, 1.0), "no token that the policy wrote"),
    "no prompt": (Sample([1, 2], [True, True], 1.0), "starts with a token of the policy"),
    "mask too short": (Sample([1, 2, 3], [False, True], 1.0), "3 tokens and a mask of 2"),
    "mask too long": (Sample([1, 2], [False, True, True], 1.0), "2 tokens and a mask of 3"),
    "nothing at all": (Sample([], [], 1.0), "no token that the policy wrote"),
}


@pytest.mark.parametrize(("sample", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_sample_that_teaches_nothing_is_refused_with_its_index(sample, message):
    with pytest.raises(ValueError, match=f"sample 1 .*{message}"):
        collate_samples([GOOD, sample], 0)


def test_no_samples_at_all_are_refused():
    with pytest.raises(ValueError, match="skip the update"):
        collate_samples([], 0)

"""What the learner makes of advantages: by group, whitened over an update, averaged over own tokens."""

import pytest
import torch

from lib.losses import group_advantages
from lib.routing.learn import averaged
from tests.routing import small


def test_every_row_of_a_batch_gets_its_own_groups_advantage_in_any_order():
    """The learner sorts by length and cuts into minibatches; groups are told by their ids."""
    samples = small.samples(9, groups=3)
    expected = group_advantages(torch.tensor([s.reward for s in samples]), [s.group for s in samples])
    wanted = {(tuple(s.ids), tuple(s.mask)): a for s, a in zip(samples, expected.tolist(), strict=True)}
    assert len(wanted) == 9 and len({round(a, 4) for a in wanted.values()}) > 2
    for shuffled in (samples, samples[::-1], samples[3:] + samples[:3]):
        made = small.learner(advantages="group", minibatch=4)
        parts = small.parts(made, shuffled)
        made._advantages(parts)
        seen = {}
        for part in parts:
            for ids, n, own, told in zip(part.ids, part.seen.sum(1), part.mask, part.advantages, strict=True):
                assert not told[~own].any() and len(set(told[own].tolist())) == 1
                seen[tuple(ids[:n].tolist()), (False, *own[: n - 1].tolist())] = float(told[own][0])
        assert seen == pytest.approx(wanted)


# Means --------------------------------------------------------------------------------------------

ADVANTAGES = torch.tensor([[1.0, 50.0, 3.0], [60.0, 5.0, 70.0]])
OWN = torch.tensor([[True, False, True], [False, True, False]])


def test_the_learner_whitens_over_all_minibatches_of_an_update():
    samples = small.samples(8)
    made, whole = (small.learner(whiten=True, minibatch=m) for m in (3, 64))
    told = []
    for each in (made, whole):
        parts = small.parts(each, samples)
        for i, part in enumerate(parts):
            part.advantages = torch.sin(torch.arange(part.mask.numel()).view(part.mask.shape) + 5.0 * i) * part.mask
        before = torch.cat([part.advantages[part.mask] for part in parts])
        each._advantages(parts)
        after = torch.cat([part.advantages[part.mask] for part in parts])
        torch.testing.assert_close(after, (before - before.mean()) / before.std(correction=0))
        assert all(not part.advantages[~part.mask].any() for part in parts)
        told.append(len(parts))
    assert told == [3, 1]


def test_averages_by_hand():
    """By sequence: (2 + 5) / 2; by token: 9 / 3."""
    assert averaged(ADVANTAGES, OWN, "sequence") == 3.5 and averaged(ADVANTAGES, OWN, "token") == 3.0

from copy import deepcopy

import pytest
import torch

from lib.experiment.seeds import rng
from lib.language_models.training.muon import Muon, orthogonalize


def drawn(*shape: int) -> torch.Tensor:
    return torch.from_numpy(rng("test", "muon", *map(str, shape)).normal(size=shape)).float()


@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 4, 10), (2, 10, 4)])
def test_the_iteration_keeps_directions_and_evens_out_singular_values(shape):
    matrices = drawn(*shape)
    found = orthogonalize(matrices)
    for matrix, update in zip(matrices, found, strict=True):
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        turned = left.T @ update @ right.T
        assert (turned - torch.diag(turned.diag())).abs().max() < 1e-3
        assert turned.diag().min() > 0.6 and turned.diag().max() < 1.3


def test_matrices_do_not_influence_each_other():
    both = drawn(2, 5, 7)
    torch.testing.assert_close(orthogonalize(both)[0], orthogonalize(both[:1])[0])


def test_no_gradient_is_no_update():
    assert (orthogonalize(torch.zeros(1, 3, 4)) == 0).all()


@pytest.mark.parametrize("shape", [(6, 6), (4, 10), (10, 4)])
def test_a_few_steps_go_where_torch_s_muon_goes_up_to_bfloat16(shape):
    start, target = drawn(*shape), drawn(*reversed(shape)).T
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimisers = (
        Muon([ours], lr=0.05),
        torch.optim.Muon([theirs], lr=0.05, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(4):
        for p, optimiser in zip((ours, theirs), optimisers, strict=True):
            optimiser.zero_grad()
            (p - target).square().sum().backward()
            optimiser.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.05 * moved


def test_its_state_can_be_kept_and_taken_up_again():
    p = torch.nn.Parameter(drawn(3, 3))
    one = Muon([p], lr=0.1)
    p.grad = drawn(3, 3)
    one.step()
    kept, at = one.state_dict(), p.detach().clone()
    again = torch.nn.Parameter(at.clone())
    other = Muon([again], lr=0.1)
    other.load_state_dict(deepcopy(kept))
    for who, optimiser in ((p, one), (again, other)):
        who.grad = drawn(3, 3) + 1
        optimiser.step()
    assert torch.equal(p, again) and not torch.equal(p, at)


def test_only_matrices():
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        Muon([torch.nn.Parameter(torch.zeros(3))], lr=0.1)

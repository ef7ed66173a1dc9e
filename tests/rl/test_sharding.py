"""Two processes learn together what one would learn alone, with whole weights in each or with shares of them."""

import contextlib
import os
from functools import partial
from pathlib import Path

import pytest
import torch

from lib.rl.sharding import gather_weights
from lib.rl.token_ppo import TokenPPO
from lib.rl.training_checkpoint import make_rank_path, read_step
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.small_systems import draw_samples
from tests.rl.trainers import make_trainer
from tests.rl.two_processes import run_in_two_processes

NUM_UPDATES = 3
SETTINGS = {"learning_rate": 1e-2, "kl": 0.1}
TRAININGS = {
    "whole weights": ({}, {"advantages": "gae", "value": "shared"}),
    "sharded, group": ({"sharded": True}, {"advantages": "group"}),
    "sharded, shared critic": ({"sharded": True}, {"advantages": "gae", "value": "shared"}),
    "sharded, separate critic": (
        {"sharded": True, "gradient_checkpointing": True},
        {"advantages": "gae", "value": "apart"},
    ),
    "sharded, LoRA": (
        {"sharded": True, "lora_rank": 2},
        {"advantages": "gae", "value": "apart"},
    ),
}
CHECKPOINT = "checkpoint.safetensors"


def collect_weights(trainer: TokenPPO) -> dict[str, torch.Tensor]:
    """All that is trained, whole."""
    weights = {}
    for name, parameter in trainer._list_parameters().items():
        tensor = parameter.detach()
        weights[name] = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return weights


def update_with_half(trainer: TokenPPO, rank: int, steps) -> list[dict[str, float]]:
    return [trainer.update(draw_samples(8, step)[rank::2]) for step in steps]


def train_and_resume(model: dict, options: dict, folder: Path, rank: int, accelerator) -> dict:
    make = partial(make_trainer, model, accelerator=accelerator, **SETTINGS | options)
    through = make()
    update_with_half(through, rank, range(NUM_UPDATES))

    # The same once more, stopped after the first update.
    stopped = make()
    update_with_half(stopped, rank, range(1))
    if model.get("sharded") or rank == 0:
        stopped.save(folder / CHECKPOINT)
    accelerator.wait_for_everyone()
    resumed = make()
    update_with_half(resumed, rank, range(5, 6))
    resumed.restore(folder / CHECKPOINT)
    update_with_half(resumed, rank, range(1, NUM_UPDATES))
    return {"through": collect_weights(through), "resumed": collect_weights(resumed)}


@pytest.mark.parametrize(("model", "options"), TRAININGS.values(), ids=TRAININGS)
def test_two_processes_learn_what_one_would_learn_alone_and_resume_bit_for_bit(
    model, options, tmp_path
):
    """With four episodes each, against one process with all eight."""
    work = partial(train_and_resume, model, options, tmp_path)
    results = run_in_two_processes(work, tmp_path)
    assert all(isinstance(result, dict) for result in results), results

    alone = make_trainer(model | {"sharded": False}, **SETTINGS | options)
    for step in range(NUM_UPDATES):
        alone.update(draw_samples(8, step))
    for name, expected in collect_weights(alone).items():
        weights = [result[kind][name] for result in results for kind in ("through", "resumed")]
        assert all(torch.equal(weight, weights[0]) for weight in weights), name
        torch.testing.assert_close(weights[0], expected, atol=2e-5, rtol=0)
    names = {path.name for path in tmp_path.glob("*.safetensors")}
    if model.get("sharded"):
        assert names == {f"checkpoint-rank-{rank}-of-2.safetensors" for rank in range(2)}
    else:
        assert names == {CHECKPOINT}


def save_and_restore_broken(folder: Path, rank: int, accelerator) -> dict:
    """What is said of a file that is cut off, and of one process's file under another's name."""
    trainer = make_trainer({"sharded": True}, accelerator=accelerator, advantages="group")
    trainer.save(folder / CHECKPOINT)
    accelerator.wait_for_everyone()
    messages = {}
    own_path = make_rank_path(folder / CHECKPOINT, rank, 2)
    content = own_path.read_bytes()
    other_content = make_rank_path(folder / CHECKPOINT, 1 - rank, 2).read_bytes()
    accelerator.wait_for_everyone()
    for name, broken in (("cut off", content[:-50]), ("of another process", other_content)):
        own_path.write_bytes(broken)
        try:
            trainer.restore(folder / CHECKPOINT)
        except ValueError as error:
            messages[name] = str(error)
    return messages


def test_a_broken_file_of_one_process_is_named(tmp_path):
    results = run_in_two_processes(partial(save_and_restore_broken, tmp_path), tmp_path)
    for rank, messages in enumerate(results):
        assert set(messages) == {"cut off", "of another process"}, messages
        for message in messages.values():
            assert f"checkpoint-rank-{rank}-of-2.safetensors is no checkpoint" in message
        assert f"it is of process {1 - rank} of 2" in messages["of another process"]


def save_until_killed(folder: Path, rank: int, accelerator) -> dict:
    """One process dies between its file and its checkpoint, at the second save; both restore afterwards."""
    make = partial(
        make_trainer, {"sharded": True}, accelerator=accelerator, advantages="group", **SETTINGS
    )
    trainer = make()
    trainer.update(draw_samples(4, 0))
    trainer.save(folder / CHECKPOINT)
    trainer.update(draw_samples(4, 1))
    replace = os.replace

    def die_at_the_last_move(source, target):
        if rank == 1 and str(source).endswith(".next"):
            raise KeyboardInterrupt
        replace(source, target)

    os.replace = die_at_the_last_move
    with contextlib.suppress(KeyboardInterrupt):
        trainer.save(folder / CHECKPOINT)
    os.replace = replace
    accelerator.wait_for_everyone()
    steps = [read_step(make_rank_path(folder / CHECKPOINT, index, 2)) for index in range(2)]

    resumed = make()
    resumed.restore(folder / CHECKPOINT)
    return {
        "steps of the files": steps,
        "step": resumed.step,
        "weights": collect_weights(resumed),
        "expected": collect_weights(trainer),
    }


def test_a_kill_between_the_files_of_two_processes_leaves_one_update_for_both(tmp_path):
    for result in run_in_two_processes(partial(save_until_killed, tmp_path), tmp_path):
        assert isinstance(result, dict), result
        assert result["steps of the files"] == [
            2,
            1,
        ]  # nothing but the other file of process 1 fits
        assert result["step"] == 2
        for name, weight in result["expected"].items():
            assert torch.equal(result["weights"][name], weight), name


def restore_without_one_file(folder: Path, rank: int, accelerator) -> str:
    trainer = make_trainer({"sharded": True}, accelerator=accelerator, advantages="group")
    trainer.save(folder / CHECKPOINT)
    accelerator.wait_for_everyone()
    if rank == 1:
        make_rank_path(folder / CHECKPOINT, 1, 2).unlink()
    trainer.restore(folder / CHECKPOINT)
    return "restored"


def test_a_file_that_is_missing_is_said_by_every_process_and_none_waits(tmp_path):
    first, second = run_in_two_processes(partial(restore_without_one_file, tmp_path), tmp_path)
    assert "another process has no such file" in first
    assert "checkpoint-rank-1-of-2.safetensors is no checkpoint" in second


def restore_files_of_three(folder: Path, rank: int, accelerator) -> str:
    trainer = make_trainer({"sharded": True}, accelerator=accelerator, advantages="group")
    assert trainer.has_checkpoint(folder / CHECKPOINT)
    trainer.restore(folder / CHECKPOINT)
    return "restored"


def test_shares_of_another_number_of_processes_are_refused(tmp_path):
    make_rank_path(tmp_path / CHECKPOINT, 0, 3).touch()
    for result in run_in_two_processes(partial(restore_files_of_three, tmp_path), tmp_path):
        assert result.startswith("ValueError") and "start it with 3 processes" in result


def bring_unequal_numbers(rank: int, accelerator) -> str:
    make_trainer(accelerator=accelerator).update(draw_samples(4 + rank))
    return "updated"


def test_unequal_numbers_of_episodes_are_refused_before_one_process_waits_for_ever(tmp_path):
    for result in run_in_two_processes(bring_unequal_numbers, tmp_path):
        assert "the processes bring [4, 5] samples" in result


def write_with_sharded_weights(rank: int, accelerator) -> torch.Tensor:
    """Each process writes as many tokens as it likes while the weights are gathered."""
    trainer = make_trainer({"sharded": True}, accelerator=accelerator, advantages="group")
    network = trainer.policy.network
    with gather_weights(network), torch.no_grad():
        ids = torch.ones(1, 1, dtype=torch.long)
        for _ in range(3 + 2 * rank):
            ids = torch.cat([ids, network(ids).logits[:, -1:].argmax(-1)], 1)
    trainer.update(draw_samples(4))  # and it is sharded again
    return ids


def test_processes_sample_at_their_own_pace_while_weights_are_gathered(tmp_path):
    written = run_in_two_processes(write_with_sharded_weights, tmp_path)
    network = small_systems.make_toy_model()
    ids = torch.ones(1, 1, dtype=torch.long)
    for _ in range(5):
        ids = torch.cat([ids, network(ids).logits[:, -1:].argmax(-1)], 1)
    assert written[0].tolist() == ids[:, :4].tolist() and written[1].tolist() == ids.tolist()


def test_sharded_training_in_one_process_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match="sharded training needs several processes"):
        make_trainer({"sharded": True})

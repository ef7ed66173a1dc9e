"""Resuming equals never having stopped, and a checkpoint holds what is trained and nothing else."""

from functools import partial

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from lib.rl.training_checkpoint import (
    CheckpointHeader,
    check_number_of_ranks,
    list_rank_paths,
    make_rank_path,
    write_checkpoint,
)
from tests.budgeted_routing import small_systems
from tests.rl.trainers import (
    have_equal_weights,
    kinds,
    list_weights,
    make_trainer,
    models,
    run_updates,
)

SETTINGS = {"minibatch": 3, "epochs": 2, "warmup": 5, "kl": 0.3}


def read_file(path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name) for name in names}, file.metadata()


@pytest.fixture(scope="module")
def start_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    small_systems.make_toy_model().save_pretrained(folder)
    return folder


@models
@kinds
def test_resuming_equals_never_having_stopped(model, advantages, value, start_folder, tmp_path):
    """Bit for bit, also where other updates went before it."""
    make = partial(
        make_trainer, model, folder=start_folder, advantages=advantages, value=value, **SETTINGS
    )
    through, stopped = make(), make()
    metrics = run_updates(through, range(5))
    assert run_updates(stopped, range(3)) == metrics[:3]
    stopped.save(tmp_path / "checkpoint.safetensors")
    for steps_before in (range(0), range(7, 9)):
        resumed = make()
        run_updates(resumed, steps_before)
        resumed.restore(tmp_path / "checkpoint.safetensors")
        assert resumed.step == 3
        assert run_updates(resumed, range(3, 5)) == metrics[3:]
        assert have_equal_weights(resumed, through)


@kinds
def test_a_network_without_a_folder_is_resumed_with_its_reference(advantages, value, tmp_path):
    """Also where another network was at hand when the training was set up again."""
    make = partial(make_trainer, advantages=advantages, value=value, **SETTINGS)
    through, stopped = make(), make()
    metrics = run_updates(through, range(4))
    run_updates(stopped, range(2))
    stopped.save(tmp_path / "checkpoint")
    resumed = make(network=small_systems.make_toy_model(9))
    resumed.restore(tmp_path / "checkpoint")
    assert run_updates(resumed, range(2, 4)) == metrics[2:]
    assert have_equal_weights(resumed, through)


@models
@kinds
def test_a_checkpoint_holds_what_is_trained_and_no_frozen_weights(
    model, advantages, value, start_folder, tmp_path
):
    trainer = make_trainer(
        model, folder=start_folder, advantages=advantages, value=value, **SETTINGS
    )
    run_updates(trainer, range(1))
    trainer.save(tmp_path / "checkpoint")
    tensors, _ = read_file(tmp_path / "checkpoint")
    parameters = trainer._list_parameters()
    assert len(tensors) == 4 * len(parameters)  # each with its step and two moments
    assert not any(name.startswith("reference.") for name in tensors)
    if "lora_rank" in model:
        weights = [name for name in tensors if name.startswith(("policy.", "critic."))]
        assert all("lora_" in name or "head" in name for name in weights)


def test_every_tensor_keeps_its_dtype(tmp_path):
    tensors = {"half": torch.ones(2, dtype=torch.bfloat16), "whole": torch.ones(3)}
    write_checkpoint(tmp_path / "checkpoint", tensors, CheckpointHeader(0, 0))
    read, _ = read_file(tmp_path / "checkpoint")
    assert {name: tensor.dtype for name, tensor in read.items()} == {
        "half": torch.bfloat16,
        "whole": torch.float32,
    }


def test_equal_states_are_equal_bytes(tmp_path):
    for name in "ab":
        trainer = make_trainer(minibatch=3)
        run_updates(trainer, range(2))
        trainer.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_training_that_has_only_skipped_updates_is_resumed(tmp_path):
    trainer = make_trainer()
    trainer.skip_update()
    trainer.save(tmp_path / "checkpoint")
    resumed = make_trainer()
    resumed.restore(tmp_path / "checkpoint")
    assert resumed.step == 1 and have_equal_weights(resumed, trainer)


def drop_tensors(part: str, path) -> None:
    """Write the file again without the tensors whose name holds `part`, header and all."""
    tensors, metadata = read_file(path)
    left = {name: tensor for name, tensor in tensors.items() if part not in name}
    assert len(left) < len(tensors)
    save_file(left, path, metadata=metadata)


def cast_tensors(path) -> None:
    tensors, metadata = read_file(path)
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    save_file(halved, path, metadata=metadata)


BROKEN = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"not a checkpoint"),
    "missing": lambda path: path.unlink(),
    "another size": lambda path: make_trainer(network=small_systems.make_toy_model(hidden=8)).save(
        path
    ),
    "without a critic": lambda path: make_trainer(advantages="group").save(path),
    "another precision": cast_tensors,
    "without a header": lambda path: save_file(read_file(path)[0], path),
    "a weight is missing": partial(drop_tensors, "critic.head.weight"),
    "the reference is missing": partial(drop_tensors, "reference.model.norm"),
    "the optimiser is missing": partial(drop_tensors, "optimiser."),
    "a moment is missing": partial(drop_tensors, "optimiser.exp_avg_sq.policy.model.norm"),
}


@pytest.mark.parametrize("break_file", BROKEN.values(), ids=BROKEN)
def test_a_broken_checkpoint_is_one_line_that_names_file_and_remedy(break_file, tmp_path):
    trainer, path = make_trainer(), tmp_path / "checkpoint.safetensors"
    trainer.update(small_systems.draw_samples())
    trainer.save(path)
    break_file(path)
    other = make_trainer()
    before = [weight.clone() for weight in list_weights(other)]
    with pytest.raises(ValueError, match=f"{path} .*delete it and run again") as error:
        other.restore(path)
    assert "\n" not in str(error.value)
    # Nothing was half restored.
    assert other.step == 0 and not other.optimiser.state
    assert all(torch.equal(a, b) for a, b in zip(list_weights(other), before, strict=True))


def test_an_adapter_of_other_frozen_weights_is_refused(start_folder, tmp_path):
    small_systems.make_toy_model(5).save_pretrained(tmp_path / "other")
    trainer = make_trainer({"lora_rank": 2}, folder=start_folder)
    trainer.save(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match="it was trained from other weights"):
        make_trainer({"lora_rank": 2}, folder=tmp_path / "other").restore(tmp_path / "checkpoint")


def test_files_of_another_number_of_processes_are_refused_with_both_numbers(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    rank_path = make_rank_path(path, 1, 4)
    assert rank_path.name == "checkpoint-rank-1-of-4.safetensors"
    rank_path.touch()
    path.touch()
    assert list_rank_paths(path) == [rank_path]
    check_number_of_ranks(path, 4)
    with pytest.raises(ValueError, match=f"{rank_path} was written by 4 processes .* has 2"):
        check_number_of_ranks(path, 2)

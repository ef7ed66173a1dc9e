"""GRPO under weighted rewards: what is paid is what the log says, and resuming equals never having stopped."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from transformers import TrainerCallback

from lib.conductor import data
from lib.conductor.meta_policy_training import ConductorWeighting, compute_joint_loss
from lib.conductor.policy_readout import read_rollouts
from lib.conductor.reply_format import extract_thought, is_well_formed
from lib.conductor.rewards import COMPONENTS, compute_length_reward
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.trainer import EXTRA_STATE, find_last_checkpoint, make_grpo_config
from lib.conductor.weighting import FixedWeighting, RandomWeighting
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_conversation
from lib.language_models.tokenizer import encode
from lib.rl.losses import compute_group_advantages
from tests.conductor import small
from tests.conductor.small import (
    GRPO,
    HIDDEN,
    ITEMS,
    REWARDS,
    K,
    Recorder,
    head,
    run,
    trainer,
    weights,
)
from tests.language_models import tiny
from tests.studies import Killed

G, STEPS = GRPO.generations, 6
WEIGHTS = {"fmt": 0.4, "ppl": 0.3, "ent": -0.2, "len": 0.1, "pref": 0.5}
R = [f"r_{name}" for name in COMPONENTS]
W = [f"w_{name}" for name in COMPONENTS]


def conducted(seed: int = 0, **changes) -> ConductorWeighting:
    return ConductorWeighting(
        HIDDEN, head(**{"learning_rate": 0.02, "update_interval": 3} | changes), G, seed
    )


@pytest.fixture(autouse=True, scope="module")
def torch_in_this_file():
    """Fixtures of this file train before the usual fixture sets the threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def fixed(place, tmp_path_factory):
    """A training under fixed weights, with everything that the reward model was shown."""
    recorder = Recorder()
    return run(
        place, tmp_path_factory.mktemp("fixed"), FixedWeighting(WEIGHTS), preference=recorder
    ), recorder


@pytest.fixture(scope="module", params=[True, False], ids=["engine", "trl"])
def through(request, place, tmp_path_factory):
    """A training with a Conductor that nobody interrupted; and who generated."""
    out = tmp_path_factory.mktemp("through")
    return run(place, out, conducted(), engine=request.param), request.param


def grouped(column) -> np.ndarray:
    return np.asarray(column, dtype=float).reshape(-1, G)


def advantages(paid: np.ndarray) -> np.ndarray:
    """(R - mean) / (std + 1e-4) in groups."""
    r = grouped(paid)
    return ((r - r.mean(1, keepdims=True)) / (r.std(1, ddof=1, keepdims=True) + 1e-4)).ravel()


def emphasised(log):
    """Numbers of the rewards that a log says were emphasised."""
    return np.array([COMPONENTS.index(name) for name in log["action"]])


# The log ------------------------------------------------------------------------------------------


def test_there_is_one_row_per_rollout_with_the_columns_that_were_promised(fixed):
    log = fixed[0].rollouts
    assert list(log) == [
        "step",
        "group",
        "item",
        "tokens_in",
        "tokens_out",
        "truncated",
        "action",
        *COMPONENTS,
        *R,
        *W,
        "advantage",
    ]
    assert len(log) == len(ITEMS) * G and fixed[0].state.global_step == STEPS
    assert log["step"].tolist() == [i // 6 for i in range(36)]
    assert (np.ptp(grouped(log["item"]), axis=1) == 0).all()
    assert sorted(log["item"].unique()) == list(range(len(ITEMS)))
    assert log["group"].tolist() == [data.get_category(ITEMS[i]) for i in log["item"]]
    assert (log["action"] == "").all()


def test_the_log_holds_what_was_said(fixed):
    """Texts and tokens are those that the reward model was shown, in the same order."""
    log, recorder = fixed[0].rollouts, fixed[1]
    assert [prompt[-1]["content"] for prompt in recorder.prompts] == [
        ITEMS[i].prompt for i in log["item"]
    ]
    assert log["tokens_in"].tolist() == [
        len(encode_conversation(prompt)) for prompt in recorder.prompts
    ]
    assert log["tokens_out"].tolist() == [len(ids) for ids in recorder.ids]
    end = fixed[0]._tokenizer.eos_token_id
    assert log["truncated"].tolist() == [ids[-1] != end for ids in recorder.ids]
    assert (
        0.1 < log["truncated"].mean() < 0.9 and log["tokens_out"].nunique() > 2
    )  # or it would be no test


def test_logged_rewards_are_raw(fixed):
    log, recorder = fixed[0].rollouts, fixed[1]
    fmt = [float(is_well_formed(text)) for text in recorder.texts]
    short = [
        compute_length_reward(len(ids), REWARDS.min_length, REWARDS.max_length)
        for ids in recorder.ids
    ]
    assert log["fmt"].tolist() == log["r_fmt"].tolist() == fmt and 0.1 < np.mean(fmt) < 0.9
    np.testing.assert_allclose(log["len"], short)
    np.testing.assert_allclose(log["r_len"], short)
    liked = [len(set(text.split())) / 10 for text in recorder.texts]
    np.testing.assert_allclose(log["r_pref"], liked, rtol=1e-6)
    np.testing.assert_allclose(log[W], np.tile(list(WEIGHTS.values()), (36, 1)), rtol=1e-6)


def test_ranks_are_of_what_was_measured_in_the_group(fixed):
    log = fixed[0].rollouts
    for name in ("ppl", "ent"):
        measured, ranks = grouped(log[name]), grouped(log[f"r_{name}"])
        for m, r in zip(measured, ranks, strict=True):
            m = np.nan_to_num(m, nan=-np.inf)
            expected = np.array([((m < x).sum() + ((m == x).sum() - 1) / 2) / (G - 1) for x in m])
            expected[np.isinf(m)] = 0
            assert r.tolist() == pytest.approx(expected.tolist())
        assert set(ranks.ravel()) >= {0.0, 0.5, 1.0}


def test_the_first_step_is_read_by_the_policy_that_wrote_it(fixed, policy):
    """The thought and the tag of the answer, then the reference; none where no thought can be read."""
    log, recorder = fixed[0].rollouts[:6], fixed[1]
    items = [ITEMS[i] for i in log["item"]]
    thoughts = [extract_thought(text) for text in recorder.texts[:6]]
    texts = [
        f"<think> {thought} </think> <answer>" if thought else "<answer>" for thought in thoughts
    ]
    told = [
        None if thought is None else encode(text)
        for thought, text in zip(thoughts, texts, strict=True)
    ]
    wanted = [encode(item.reference) for item in items]
    reading = read_rollouts(
        policy, list(map(encode_conversation, recorder.prompts[:6])), recorder.ids[:6], told, wanted
    )
    np.testing.assert_allclose(log["ppl"], reading.likelihood, atol=1e-5)
    np.testing.assert_allclose(log["ent"], reading.entropy, atol=1e-5)


def test_the_advantage_is_that_of_the_weighted_sum(fixed):
    log = fixed[0].rollouts
    paid = log[R].to_numpy(dtype=float) @ np.array(list(WEIGHTS.values()))
    np.testing.assert_allclose(log["advantage"], advantages(paid), atol=2e-3)
    assert np.abs(log["advantage"]).max() > 0.5
    np.testing.assert_allclose(grouped(log["advantage"]).sum(1), 0, atol=1e-4)


def test_the_policy_has_learned_and_the_reference_has_followed(fixed, policy):
    made = fixed[0]
    assert len({weights(made.model), weights(made.ref_model), weights(policy)}) == 3


# What may weigh -----------------------------------------------------------------------------------


def test_the_conductor_pays_what_its_log_says(through):
    """Settled weights and drawn action together are the weights that paid: kappa is 1/2."""
    made, _ = through
    log = made.rollouts
    pi, action = log[W].to_numpy(dtype=float), emphasised(log)
    np.testing.assert_allclose(pi.sum(1), 1, atol=1e-5)
    assert set(action) <= set(range(K)) and len(set(action)) > 2
    paid = ((pi + np.eye(K)[action]) / 2 * log[R].to_numpy(dtype=float)).sum(1)
    np.testing.assert_allclose(log["advantage"], advantages(paid), atol=2e-3)


def test_it_starts_even_and_learns_every_third_step(through):
    made, _ = through
    pi = made.rollouts[W].to_numpy(dtype=float).reshape(STEPS, -1, K)
    np.testing.assert_allclose(pi[:3], 1 / K, atol=1e-6)
    assert (
        np.abs(pi[3:] - 1 / K).max() > 0.01
        and made.weighting.num_updates == 2
        and not made.weighting.buffer
    )


@pytest.mark.parametrize("layer", ["first", "last"])
def test_a_triplet_is_state_action_and_advantage_of_a_rollout(layer, place, policy, tmp_path):
    recorder, weighting = Recorder(), conducted()
    made = run(place, tmp_path, weighting, preference=recorder, layer=layer, items=ITEMS[:2])
    (batch,) = weighting.buffer
    assert batch.action.tolist() == emphasised(made.rollouts).tolist()
    assert batch.advantage.tolist() == pytest.approx(made.rollouts["advantage"].tolist())
    asked, blank = list(map(encode_conversation, recorder.prompts)), [[1]] * len(recorder.prompts)
    assert torch.allclose(
        batch.h, read_rollouts(policy, asked, recorder.ids, blank, blank, layer).h, atol=1e-5
    )


def test_centred_rewards_pay_only_what_differs_in_the_group(place, tmp_path):
    made = run(place, tmp_path, conducted(centred=True, kappa=1.0), items=ITEMS[:4])
    log = made.rollouts
    r = log[R].to_numpy(dtype=float).reshape(-1, G, K)
    paid = (np.eye(K)[emphasised(log)] * (r - r.mean(1, keepdims=True)).reshape(-1, K)).sum(1)
    np.testing.assert_allclose(log["advantage"], advantages(paid), atol=2e-3)
    assert log[R].to_numpy().min() >= 0 and log["r_len"].max() == 1  # the log is not centred


def test_the_joint_gradient_is_that_of_the_lengths_of_replies(place, tmp_path):
    """TRL's own loss, against `compute_joint_loss`: what is left of it for the head when ratios are 1."""
    made = trainer(place, tmp_path, conducted(joint=True), items=ITEMS[:2], kl=0.0, top_entropy=1.0)
    gradients = []

    def keep_gradient():
        gradients.append(made.weighting.conductor.linear.weight.grad.clone())

    made.weighting.finish_step = keep_gradient
    with silence_libraries():
        made.train_or_resume()
    log, fresh = made.rollouts, conducted(joint=True)
    weights, action = fresh.weigh_rollouts(made.weighting.last_context, 0)
    assert action.tolist() == emphasised(log).tolist()
    rewards = torch.tensor(log[R].to_numpy(dtype=np.float32))
    advantage = compute_group_advantages((weights * rewards).sum(-1), G)
    num_tokens = torch.tensor(log["tokens_out"].to_numpy() * ~log["truncated"].to_numpy(dtype=bool))
    compute_joint_loss(advantage, num_tokens.float(), GRPO.max_tokens).backward()
    expected = fresh.conductor.linear.weight.grad
    assert len(gradients) == 1 and gradients[0].abs().max() > 1e-6
    assert torch.allclose(gradients[0], expected, rtol=1e-3, atol=1e-7)


def test_joint_updates_come_every_step_from_the_policys_own_loss(place, tmp_path):
    made = run(place, tmp_path, conducted(joint=True), items=ITEMS[:6])
    assert made.weighting.num_updates == made.state.global_step == 3
    assert np.abs(made.weighting.get_state()["conductor.linear.weight"]).max() > 0


# Bad rollouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_rollouts_that_never_end_teach_the_policy_nothing(importance, tmp_path):
    """Not even the distance to a reference that is somewhere else."""
    babbler = tiny.model(0, hidden=HIDDEN, intermediate=16)
    place = checkpoints.save(babbler, tmp_path / "babbler")
    made = trainer(
        place,
        tmp_path / "out",
        conducted(),
        max_tokens=2,
        importance=importance,
        kl=1.0,
        sync_every=1000,
    )
    with torch.no_grad():
        for weight in made.ref_model.parameters():
            weight.add_(0.1)
    with silence_libraries():
        made.train_or_resume()
    assert made.rollouts["truncated"].all() and len(made.rollouts) == 36
    assert made.rollouts["advantage"].abs().max() > 0.5  # there was something to learn from
    measured = made.rollouts.select_dtypes("number").drop(columns="ppl")
    assert np.isfinite(measured).all().all()
    assert made.state.log_history[-1]["train_loss"] == 0
    assert weights(made.model) == weights(babbler)


# Again --------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_rollouts_and_another_gives_others(
    through, place, tmp_path
):
    made, engine = through
    again = run(place, tmp_path / "again", conducted(), engine=engine)
    assert weights(again.model) == weights(made.model) and weights(again.ref_model) == weights(
        made.ref_model
    )
    assert_frame_equal(again.rollouts, made.rollouts, check_exact=True)
    other = run(place, tmp_path / "other", conducted(1), seed=1, engine=engine)
    assert weights(other.model) != weights(made.model)
    assert other.rollouts["ent"].tolist() != made.rollouts["ent"].tolist()


class Killer(TrainerCallback):
    """Ends a training in the middle of a step."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.after:
            raise Killed


@pytest.fixture(scope="module")
def killed(through, place, tmp_path_factory):
    """A folder that a training left which was killed after step 5; its last checkpoint is of step 4."""
    out = tmp_path_factory.mktemp("killed")
    stopped = trainer(place, out, conducted(), engine=through[1], callbacks=[Killer(5)])
    with silence_libraries(), pytest.raises(Killed):
        stopped.train_or_resume()
    return out


def assert_same(one, other) -> None:
    """Everything that a training leaves, bit for bit."""
    assert weights(one.model) == weights(other.model)
    assert weights(one.ref_model) == weights(other.ref_model)
    a, b = one.weighting.get_state(), other.weighting.get_state()
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    assert_frame_equal(one.rollouts, other.rollouts, check_exact=True)


def test_going_on_equals_never_having_stopped(through, killed, place, tmp_path):
    shutil.copytree(killed, tmp_path / "out")
    assert find_last_checkpoint(tmp_path / "out").name == "checkpoint-4"
    resumed = run(place, tmp_path / "out", conducted(), engine=through[1])
    assert resumed.timings["steps"] == 2 and resumed.state.global_step == STEPS
    assert_same(resumed, through[0])


def test_a_checkpoint_that_is_half_written_is_passed_over(through, killed, place, tmp_path):
    shutil.copytree(killed, tmp_path / "out")
    (tmp_path / "out/checkpoint-4" / EXTRA_STATE).unlink()
    assert find_last_checkpoint(tmp_path / "out").name == "checkpoint-2"
    resumed = run(place, tmp_path / "out", conducted(), engine=through[1])
    assert resumed.timings["steps"] == 4
    assert_same(resumed, through[0])


# The rest -----------------------------------------------------------------------------------------


def test_a_dataset_of_ones_own_needs_no_categories(place, tmp_path):
    """The data set has no column row, and TRL generates the replies."""
    rows = {
        "prompt": ["tom has 3 apples .", "the cat"],
        "reference": ["3", "mat"],
        "category": ["all", "all"],
    }
    made = trainer(place, tmp_path, FixedWeighting({"pref": 1.0}), engine=False)
    made.train_dataset = data.Dataset.from_dict(rows)
    with silence_libraries():
        made.train_or_resume()
    assert len(made.rollouts) == 6 and set(made.rollouts["group"]) == {"all"}
    assert (made.rollouts["item"] == -1).all()


def test_the_configuration_is_table_7(tmp_path):
    made = make_grpo_config(GRPO, tmp_path, 3, "normalize_then_sum", num_iterations=2)
    assert (made.loss_type, made.mask_truncated_completions) == ("dr_grpo", True)
    assert (made.beta, made.num_iterations) == (0.1, 2)
    assert (
        made.per_device_train_batch_size,
        made.num_generations,
        made.gradient_accumulation_steps,
    ) == (6, 3, 1)
    assert (made.sync_ref_model, made.ref_model_sync_steps, made.ref_model_mixup_alpha) == (
        True,
        2,
        0.6,
    )
    assert (made.top_entropy_quantile, made.importance_sampling_level, made.scale_rewards) == (
        0.5,
        "sequence",
        "group",
    )
    assert made.multi_objective_aggregation == "normalize_then_sum"
    assert made.seed != make_grpo_config(GRPO, tmp_path, 4, "sum_then_normalize").seed


def test_the_engine_and_trl_ask_the_same(place, tmp_path):
    """The lab's engine builds the prompt itself."""
    engine, other = (
        small.trainer(place, tmp_path / str(e), FixedWeighting({"pref": 1.0}), engine=e)
        for e in (True, False)
    )
    prompts = [row["prompt"] for row in data.make_dataset(ITEMS[:4])]
    for made in (engine, other):
        made.model.train()
    told = [made._generate([p for p in prompts for _ in range(3)])[0] for made in (engine, other)]
    assert told[0] == told[1]


def luck(row, **_) -> list[float]:
    """A further reward; depends on the order in which it is asked, so that rollouts of a prompt differ."""
    return [(7 * i + 3 * number) % 10 / 10 for number, i in enumerate(row)]


def test_trl_reports_the_raw_means_too_and_the_clock_counts_steps_and_weighing(fixed):
    report, log, clock = fixed[0].state.log_history[-1], fixed[0].rollouts, fixed[0].timings
    assert clock["steps"] == STEPS and 0 < clock["weighing"] < clock["training"]
    for name in COMPONENTS:
        by_step = log.groupby("step")[name].mean()  # ppl is missing where no thought can be read
        assert report[f"raw/{name}"] == pytest.approx(by_step.mean(), rel=1e-4)
    assert report["rewards/fmt/mean"] == pytest.approx(WEIGHTS["fmt"] * log["fmt"].mean(), rel=1e-4)


def test_joint_updates_survive_a_group_of_equal_rewards(place, tmp_path):
    """The deviation that TRL divides by has no slope at 0; without an emphasis of their own, nothing else either."""
    made = run(place, tmp_path, conducted(joint=True, kappa=1.0), items=ITEMS[:4])
    assert (
        (made.rollouts["advantage"].to_numpy().reshape(-1, G) == 0).all(1).any()
    )  # or it would be no test
    assert not made.weighting.get_state()["conductor.linear.weight"].any()
    made = run(place, tmp_path / "cold", conducted(joint=True), items=ITEMS[:4], temperature=1e-3)
    assert all(np.isfinite(array).all() for array in made.weighting.get_state().values())


def test_random_weights_pay_what_was_drawn(place, tmp_path):
    made = run(place, tmp_path, RandomWeighting(0), items=ITEMS[:4])
    drawn = torch.cat(
        [RandomWeighting(0).weigh_rollouts(torch.zeros(6, 1), step)[0] for step in range(2)]
    ).numpy()
    paid = (drawn * made.rollouts[R].to_numpy(dtype=float)).sum(1)
    np.testing.assert_allclose(made.rollouts["advantage"], advantages(paid), atol=2e-3)
    np.testing.assert_allclose(made.rollouts[W], 1 / K, rtol=1e-6)  # settled


def test_weights_for_a_reward_that_is_not_there_are_refused_by_name(place, tmp_path):
    with pytest.raises(ValueError, match="beauty"):
        small.trainer(place, tmp_path, FixedWeighting({"beauty": 1.0}))


def test_further_rewards_are_logged_and_count_only_where_they_are_weighed(place, tmp_path):
    paying = run(
        place, tmp_path / "a", FixedWeighting({"luck": 2.0}), extra={"luck": luck}, items=ITEMS[:2]
    )
    np.testing.assert_allclose(
        paying.rollouts["advantage"], advantages(paying.rollouts["luck"] * 2), atol=2e-3
    )
    logged = run(
        place, tmp_path / "b", FixedWeighting({"pref": 1.0}), extra={"luck": luck}, items=ITEMS[:2]
    )
    assert (
        logged.rollouts["luck"].tolist()
        == logged.rollouts["r_luck"].tolist()
        == paying.rollouts["luck"].tolist()
    )
    np.testing.assert_allclose(
        logged.rollouts["advantage"], advantages(logged.rollouts["r_pref"]), atol=2e-3
    )


def test_gdpo_normalises_each_weighted_reward_before_the_sum(place, tmp_path):
    made = run(
        place, tmp_path, FixedWeighting(WEIGHTS), aggregation="normalize_then_sum", items=ITEMS[:2]
    )
    r = (made.rollouts[R].to_numpy(dtype=float) * list(WEIGHTS.values())).reshape(-1, G, K)
    total = (
        ((r - r.mean(1, keepdims=True)) / (r.std(1, ddof=1, keepdims=True) + 1e-4)).sum(-1).ravel()
    )
    expected = (total - total.mean()) / (total.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(made.rollouts["advantage"], expected, atol=5e-3)


def test_equal_rollouts_have_no_advantage_and_finite_ones(place, tmp_path):
    """A group that says the same thrice: as good as cold."""
    made = run(place, tmp_path, conducted(kappa=0.0), temperature=1e-3, items=ITEMS[:2])
    log = made.rollouts
    assert log["tokens_out"].nunique() <= 2 and np.abs(log["advantage"]).max() < 1e-2
    assert set(log["r_ent"]) == {0.5}


def test_a_training_that_was_finished_is_not_done_again(through, place, tmp_path):
    shutil.copytree(through[0].args.output_dir, tmp_path / "out")
    again = run(place, tmp_path / "out", conducted(), engine=through[1])
    assert again.timings["steps"] == 0
    assert_same(again, through[0])


def test_a_checkpoint_of_another_weighting_is_refused(through, place, tmp_path):
    shutil.copytree(through[0].args.output_dir, tmp_path / "out")
    with pytest.raises((KeyError, RuntimeError)):
        run(place, tmp_path / "out", ConductorWeighting(HIDDEN + 1, head(), G, 0))


def test_two_checkpoints_are_kept_and_the_last_has_the_whole_log(through):
    out = through[0].args.output_dir
    kept = sorted(
        place.parent.name
        for place in find_last_checkpoint(out).parent.glob(f"checkpoint-*/{EXTRA_STATE}")
    )
    assert (
        kept == ["checkpoint-4", "checkpoint-6"]
        and find_last_checkpoint(out).name == "checkpoint-6"
    )
    log = pd.read_parquet(find_last_checkpoint(out) / "rollouts.parquet")
    assert_frame_equal(log, through[0].rollouts)
    assert weights(checkpoints.load(find_last_checkpoint(out))) == weights(through[0].model)


def test_the_last_checkpoint_is_the_newest_by_number(tmp_path):
    assert (
        find_last_checkpoint(tmp_path) is None and find_last_checkpoint(tmp_path / "none") is None
    )
    for step in (9, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert find_last_checkpoint(tmp_path) is None
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}" / EXTRA_STATE).touch()
    assert find_last_checkpoint(tmp_path).name == "checkpoint-10"


def test_evaluation_settles_and_teaches_and_logs_nothing(place, tmp_path):
    made = trainer(place, tmp_path, conducted(update_interval=1))
    before = made.weighting.get_state()
    with silence_libraries():
        made.args.per_device_eval_batch_size = 6
        made.evaluate(data.make_dataset(ITEMS[:4]))
    assert made.rollouts.empty and made.weighting.num_updates == 0
    assert all(
        np.array_equal(before[name], array) for name, array in made.weighting.get_state().items()
    )


def test_without_a_distance_to_keep_there_is_no_reference(place, tmp_path):
    made = run(place, tmp_path, conducted(), kl=0.0, items=ITEMS[:4], save_every=1)
    assert made.ref_model is None and len(made.rollouts) == 12
    again = run(place, tmp_path, conducted(), kl=0.0, items=ITEMS[:4], save_every=1)
    assert again.timings["steps"] == 0 and weights(again.model) == weights(made.model)

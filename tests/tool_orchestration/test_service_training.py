"""`python -m lib train toolorchestra --tasks tau2:...`: users and experts are programs."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from transformers import Qwen3Config, Qwen3ForCausalLM

from lib import tasks
from lib.experiment import artifacts
from lib.llm.chat_model import Failure, Reply
from lib.llm.open_models import ChatModels
from lib.rl.generators import HFGenerator
from lib.rl.user_training.evaluation import START, TRAINED
from lib.tasks.tau2_bench import ServiceEnvironment, explain_absence, load_domain
from lib.tool_orchestration import (
    service_options,
    service_prompts,
    service_train_command,
    service_training,
    train_command,
)
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.rewards import normalize_within_groups
from lib.tool_orchestration.service_episodes import ConversationRunner, ServiceTeam
from lib.tool_orchestration.tool_menu import ToolMenu, UserPreference
from tests.budgeted_routing.small_systems import FunctionModel
from tests.language_models.hugging_face_folders import CHATML, TOOL_TEMPLATE, make_tokenizer
from tests.rl.user_training import small
from tests.tasks.tau2_bench import gold_team

needs_package = pytest.mark.skipif(bool(explain_absence()), reason=explain_absence() or "installed")
WINDOW = 32_768
HOSTED = (
    "{backend: endpoint, base_url: 'http://localhost:1/v1', model: maker/%s, price_in: 1.0e-6, "
    "price_out: 2.0e-6, max_tokens: 100}"
)
TABLES = ("rollouts", "learning", "evaluation", "baselines", "start")
ASKED: list[str] = []
LOST: list[str] = []  # names of models whose next replies in conversations are lost
_TASK = re.compile(r"task (\w+) (\d+)")
# Calls of the domain's functions; the example of the plain form has a line break.
_CALL = re.compile(r'<tool_call>\{(?!"name": "ask_)')


def write_call(name: str, arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def act(context: str) -> str:
    """Carry out the gold actions of the task that the user names, and say what has to be said."""
    task = gold_team.find_task(_TASK.search(context)[0])
    criteria = task.evaluation_criteria
    num_done = len(_CALL.findall(context))
    if num_done == len(criteria.actions):
        return " ".join(["Done.", *(criteria.communicate_info or [])])
    action = criteria.actions[num_done]
    return write_call(action.name, action.arguments)


def act_by_seed(context: str, seed: int) -> str:
    """Solve the task or give it up, by the seed; two in three ask a model before."""
    if "<tool_call>{" not in context:
        if seed % 3 == 0:
            return "Done."
        tools = sorted(set(re.findall(r"ask_\w+", context)))
        return write_call(tools[seed % len(tools)], {"question": "What now?"})
    return act(context)


def give_up(context: str, seed: int) -> str:
    return "Done."


def answer(name: str, request) -> Reply:
    """The user ends the conversation where the agent is done; experts are agents that know everything."""
    ASKED.append(name)
    if name in LOST and any(m["role"] == "assistant" for m in request.messages):
        return Reply("", name, "endpoint", failure=Failure("timeout"))
    system = request.messages[0]["content"]
    is_trial = not request.tools and not system.startswith(("# User", "You advise"))
    reply = gold_team.make_text(name, "Yes.") if is_trial else gold_team.answer(name, request)
    if system.startswith("You advise") and name in LOST:
        return Reply("", name, "endpoint", failure=Failure("timeout"))
    return reply


def make_folder(folder: Path, template: str) -> Path:
    """A Qwen3 with random weights, and a tokenizer that knows the words of policy and functions."""
    domain = load_domain("retail")
    schemas = [tool.schema for tool in ServiceEnvironment(domain, "0").tools.values()]
    text = domain.policy + json.dumps(schemas)
    words = re.findall(r" ?\w{2,}|[^\w\s]{2,}", text)
    tokenizer = make_tokenizer(list(dict.fromkeys(words)), template)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=WINDOW,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Model folders with tools in the chat template, and without."""
    root = tmp_path_factory.mktemp("service")
    if not explain_absence():
        make_folder(root / "own", TOOL_TEMPLATE)
        make_folder(root / "plain", CHATML)
    return root


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """Models that are programs in this process."""
    ASKED.clear()
    LOST.clear()

    def open_models(llm, names, *_, **__):
        return ChatModels({name: FunctionModel(name, answer, "endpoint") for name in names})

    monkeypatch.setattr(service_options, "open_models", open_models)


def script(monkeypatch, write) -> None:
    monkeypatch.setattr(HFGenerator, "write_turns", small.script_turns(write))


def list_arguments(place: Path, out: str, *more: str, folder: str = "own") -> list[str]:
    arguments = [
        "--tasks",
        "tau2:retail",
        "--model",
        str(place / folder),
        "--out",
        str(place / out),
    ]
    arguments += [
        "--experts",
        "small,large",
        "--user",
        "customer",
        "--max-usd",
        "5",
        "--turns",
        "20",
    ]
    for name in ("small", "large", "customer"):
        arguments += ["--set", f"llm.models.{name}={HOSTED % name}"]
    arguments += ["--profile", "smoke", "--updates", "2", "--batch", "8", "--max-test", "4"]
    arguments += ["--set", "rollouts=4", "--set", "learn.microbatch=2", "--set", "turn_tokens=400"]
    return [*arguments, *more]


def run(place: Path, out: str, *more: str, folder: str = "own") -> int:
    return train_command.main(list_arguments(place, out, *more, folder=folder))


def read(folder: Path, name: str) -> pd.DataFrame:
    return artifacts.read_parquet(folder / f"{name}.parquet")


@pytest.fixture
def trained(place, monkeypatch, capsys) -> Path:
    """A first training of two updates, done once for every test that looks at it."""
    script(monkeypatch, act_by_seed)
    if not (place / "out").exists():
        assert run(place, "out") == 0, capsys.readouterr().err
        (place / "printed.txt").write_text(capsys.readouterr().out)
    return place / "out"


def hold(place: Path, folder: str, items, menu: ToolMenu | None = None):
    """Hold conversations of a scripted policy, as the training does."""
    options = service_train_command.read_options(list_arguments(place, "none", folder=folder))
    inputs = service_train_command.read_inputs(options)
    loop = service_train_command.make_loop_settings(inputs)
    settings = service_train_command.make_model_settings(options, 1.0)
    share = service_train_command.join_processes(needs_several=False)
    controller = service_train_command.read_controller(options, settings, loop, "", share)
    policy = service_train_command.make_policy(controller, folder)
    menu = menu or service_prompts.make_menu(["small", "large"])
    assignments = [Assignment(item, menu, UserPreference(1.0, 0.5, 0.0)) for item in items]
    with service_options.open_pool(inputs.llm, inputs.asked_names, place, 1.0) as pool:
        team = ServiceTeam("policy", "customer", ("small", "large"))
        runner = ConversationRunner(pool, inputs.llm, team, 30, 1.0, policy)
        return runner.run(assignments, range(len(items))), policy


@needs_package
@pytest.mark.parametrize("folder", ["own", "plain"])
def test_a_policy_that_carries_out_the_gold_actions_solves_tasks_and_one_that_does_nothing_none(
    place, monkeypatch, folder
):
    items = tasks.load("tau2:retail", split="train").items[:3]
    script(monkeypatch, lambda context, seed: act(context))
    episodes, policy = hold(place, folder, items)
    assert [episode.correct for episode in episodes] == [1.0, 1.0, 1.0]
    assert policy.conversation.is_plain == (folder == "plain")
    script(monkeypatch, give_up)
    episodes, _ = hold(place, folder, items)
    assert [episode.correct for episode in episodes] == [0.0, 0.0, 0.0]


@needs_package
@pytest.mark.parametrize("folder", ["own", "plain"])
def test_the_mask_covers_what_the_policy_wrote_and_nothing_else(place, monkeypatch, folder):
    written = []

    def write(context: str, seed: int) -> str:
        written.append(act(context))
        return written[-1]

    script(monkeypatch, write)
    (item,) = tasks.load("tau2:retail", split="train").items[:1]
    (episode,), policy = hold(place, folder, [item])
    decode = policy.generator.decode
    own = [i for i, by_policy in zip(episode.ids, episode.mask, strict=True) if by_policy]
    others = [i for i, by_policy in zip(episode.ids, episode.mask, strict=True) if not by_policy]
    assert decode(own) == "".join(written)
    results = [m["content"] for m in episode.messages["agent"] if m["role"] == "tool"]
    assert results and all(result in decode(others) for result in results)
    assert "Done." not in decode(others) and "<preferences>" in decode(others)


@needs_package
def test_experts_cost_what_the_menu_says_and_only_those_on_it_can_be_asked(place, monkeypatch):
    offer = service_prompts.make_expert_offer("small", 1e-3, 2.0).scale_prices(3.0, 5.0)
    asked = iter(["ask_small", "ask_large"])

    def ask(context: str, seed: int) -> str:
        tool = next(asked, None)
        return write_call(tool, {"question": "What?"}) if tool else act(context)

    script(monkeypatch, ask)
    (item,) = tasks.load("tau2:retail", split="train").items[:1]
    (episode,), policy = hold(place, "own", [item], ToolMenu((offer,)))
    # A reply of the program costs a tenth of a cent, and the policy's own tokens nothing.
    assert episode.cost_usd == pytest.approx(3e-3) and ASKED.count("large") == 0
    assert "Tool 'ask_large' not found" in policy.generator.decode(episode.ids)
    own_seconds = sum(episode.mask) / 50
    assert episode.seconds == pytest.approx(5.0 * 10 / 50 + own_seconds)
    prompt = policy.generator.decode(episode.ids)
    assert "reads at $3, writes at $6" in prompt and "about 10 seconds" in prompt


@needs_package
def test_a_training_learns_from_groups_whose_rewards_differ_and_leaves_all_files(trained, place):
    learning, rollouts = read(trained, "learning"), read(trained, "rollouts")
    assert len(rollouts) == 16 and learning["learned_from"].sum() > 0
    assert set(rollouts["correct"]) == {0.0, 1.0} and rollouts["expert_calls"].sum() > 0
    before = artifacts.read_tensors(place / "own/model.safetensors")
    after = artifacts.read_tensors(trained / "controller/model.safetensors")
    assert any((after[name] != before[name]).any() for name in before)
    printed = (place / "printed.txt").read_text()
    assert artifacts.read_json(trained / "summary.json")["outcome"] in printed
    assert "74 tasks to learn from (train), 4 of the evaluation (test)" in printed
    assert (trained / "report.html").is_file()


@needs_package
def test_rewards_are_those_of_the_paper_within_the_rollouts_of_a_task(trained):
    rollouts = read(trained, "rollouts")
    for _, group in rollouts.groupby(["step", "rollout_group"]):
        assert group["item"].nunique() == 1
        vectors = np.stack(group["m"])
        normalized = normalize_within_groups(vectors, [0] * len(group))
        expected = (normalized * np.stack(group["p"])).sum(1) * group["correct"]
        assert group["reward"].to_numpy() == pytest.approx(expected.to_numpy())


@needs_package
def test_held_out_tasks_are_evaluated_before_and_after_beside_every_expert_alone(trained):
    rows = read(trained, "evaluation")
    assert set(rows["method"]) == {START, TRAINED, "alone: small", "alone: large"}
    assert rows.groupby("method")["item"].nunique().eq(4).all()
    assert not set(rows["item"]) & set(read(trained, "rollouts")["item"])
    alone = rows[rows["method"] == "alone: small"]
    assert (alone["correct"] == 1.0).all() and (alone["cost_usd"] > 0).all()
    summary = artifacts.read_json(trained / "summary.json")
    assert {"value", "ci_low", "ci_high"} == set(summary["means"]["correct"][TRAINED])


@needs_package
def test_a_run_that_was_interrupted_and_goes_on_equals_one_that_never_stopped(
    trained, place, monkeypatch
):
    collect_episodes = service_training.ServiceTraining.collect_episodes

    def collect(training, step):
        if step == 1:
            raise KeyboardInterrupt
        return collect_episodes(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(service_training.ServiceTraining, "collect_episodes", collect)
        assert run(place, "interrupted") == 130
    assert run(place, "interrupted") == 0
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(place / "interrupted", name))
    for name in ("controller/model.safetensors", "rollouts.parquet"):
        assert (trained / name).read_bytes() == (place / "interrupted" / name).read_bytes()


@needs_package
@pytest.mark.parametrize("name", ["small", "customer"])
def test_conversations_that_lost_a_reply_are_counted_and_in_no_score(
    place, monkeypatch, capsys, name
):
    script(monkeypatch, act_by_seed)
    LOST.append(name)
    out = f"lost-{name}"
    run(place, out, "--updates", "1", "--max-test", "1")
    rollouts = read(place / out, "rollouts")
    lost = rollouts[rollouts["failed"]]
    assert len(lost) and lost["reward"].isna().all() and lost["correct"].isna().all()
    who = "user" if name == "customer" else f"ask_{name}"
    assert set(lost["failure"]) == {f"{who}: timeout"}
    assert f"{len(lost)} lost" in capsys.readouterr().out


@needs_package
def test_a_call_that_cannot_be_read_ends_a_conversation_that_nothing_is_learned_from(
    place, monkeypatch, capsys
):
    def write(context: str, seed: int) -> str:
        return '<tool_call>{"name": "get_order_details", "arguments": </tool_call>'

    script(monkeypatch, write)
    run(place, "malformed", "--updates", "1", "--max-test", "1")
    rollouts, learning = (
        read(place / "malformed", "rollouts"),
        read(place / "malformed", "learning"),
    )
    assert (rollouts["malformed"] == 1).all() and (rollouts["correct"] == 0.0).all()
    assert learning["left_out_malformed"].item() == 8 and learning["learned_from"].item() == 0
    assert "ended by agent: malformed 8" in capsys.readouterr().out


@needs_package
def test_a_model_that_writes_at_random_trains_two_updates(place, capsys):
    more = ("--turns", "2", "--max-test", "1", "--batch", "4", "--set", "turn_tokens=6")
    assert run(place, "random", *more, folder="plain") == 0
    learning = read(place / "random", "learning")
    assert list(learning["step"]) == [1, 2] and (learning["correct"] == 0.0).all()
    assert "Before training: 0 of 1 solved" in capsys.readouterr().out


@needs_package
def test_a_plan_names_memory_and_costs_asks_nobody_and_leaves_nothing(place, capsys):
    assert run(place, "planned", "--plan-only") == 0
    printed = capsys.readouterr().out
    assert (
        "An update of 8 conversations takes at most 160 calls of the user (customer, $" in printed
    )
    assert "and 160 calls of experts" in printed and "at the peak" in printed
    assert "--max-usd = $5" in printed
    assert not ASKED and not (place / "planned").exists()


@needs_package
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--experts", "small,nobody"), "there is no model 'nobody'"),
        (("--tasks", "gsm8k"), "name a domain as tau2:retail"),
        (("--turns", "0"), "--turns 0"),
        (("--batch", "6"), "6 episodes are no whole number of groups of 4 rollouts"),
        (("--split", "test"), "has no task that --test-split test has not"),
        (("--set", "learn.klo=1"), "--set learn.klo"),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it(place, capsys, more, message):
    assert run(place, "mistake", *more) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error and message in error


@needs_package
def test_a_window_without_room_is_refused_before_anybody_is_asked(place, tmp_path, capsys):
    small.make_qwen_folder(tmp_path / "short")
    assert run(place, "short", "--model", str(tmp_path / "short")) == 2
    assert "leave no room for a turn in its window" in capsys.readouterr().err
    assert not ASKED


def test_help_shows_an_example(capsys):
    for arguments in (["--tasks", "tau2:retail", "--help"], ["--help"]):
        with pytest.raises(SystemExit):
            train_command.main(arguments)
        assert "--tasks tau2:retail" in capsys.readouterr().out

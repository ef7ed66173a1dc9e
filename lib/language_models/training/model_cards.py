"""Model cards by measurement: what a model can do, how well it knows it, what a token costs.

A card is made from replies to test items and from counted floating point operations; nothing is declared but the
price of an operation and the clock. The description that menus of tools show is written from the card's numbers by a
fixed rule.

Left out: estimates over models and intervals of differences, which `lib.stats` makes from the replies.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaForCausalLM

from lib import stats, tasks
from lib.config import LabSettings
from lib.experiment import artifacts, seeds, sweep
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.checkpoints import LIMIT, MODELS
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode
from lib.language_models.training import agent_traces, build, decision_traces, training_data
from lib.language_models.training.pretraining import find_solved_items, verify_replies
from lib.language_models.training.training_data import write_question

VERSION = 1  # of replies to test items, prices and descriptions
_COUNTED_TOKENS = 64  # length of the prompt whose forward pass is counted for the price of a token
_PRICE_SETTINGS = ("dollars_per_teraflop", "flops_per_second", "seconds_per_token")
GOOD, POOR = 0.75, 0.3  # accuracies between which a model is said to be unsure
_CALIBRATION_BINS = 10


@dataclass(frozen=True)
class TokenPrice:
    """What one token of a model costs.

    Attributes:
        flops: Floating point operations, counted.
        cost_usd: Dollars, at the declared price of an operation.
        seconds: By the declared clock.
    """

    flops: float
    cost_usd: float
    seconds: float


def compute_token_price(model: LlamaForCausalLM, settings: LabSettings) -> TokenPrice:
    """Compute what one token of a model costs, from the floating-point operations of a forward pass of 64 tokens.

    Args:
        model: A lab model, a small model trained in this repository.
        settings: Dollars per 1e12 operations, operations per second and seconds per token, all declared, not measured.

    Returns:
        Operations, dollars and seconds per token.
    """
    # The counter does not see the operations of the fused attention kernel, so the plain one runs here.
    plain_attention = sdpa_kernel(SDPBackend.MATH)
    # Any tokens do: the number of operations depends on the length alone.
    input_ids = torch.zeros(1, _COUNTED_TOKENS, dtype=torch.long)  # (1, 64)
    with plain_attention, FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=input_ids)
    flops = counter.get_total_flops() / _COUNTED_TOKENS
    cost_usd = flops / 1e12 * settings.dollars_per_teraflop
    seconds = settings.seconds_per_token + flops / settings.flops_per_second
    return TokenPrice(flops, cost_usd, seconds)


def draw_test_items(settings: LabSettings, model: str) -> list[tasks.Item]:
    """Draw the test set of a lab model: items of every task family, wording and difficulty.

    Args:
        settings: Training data of each lab model, the seed, and `test_items`, the number of items of each family,
            surface form (wording, such as "plain" or "choice") and difficulty.
        model: Name of the lab model.

    Returns:
        The items, no prompt twice. The family of decision situations is there only for a model trained on it.
    """
    taught_families = {component.family for component in settings.models[model].data_mixture}
    items_by_prompt: dict[str, tasks.Item] = {}
    for name, family in tasks.FAMILIES.items():
        # This family registers itself in `tasks.FAMILIES` when its module is imported. Models that were not trained on
        # it skip it, so that their test set does not depend on which modules happen to be imported.
        if name == decision_traces.FAMILY and name not in taught_families:
            continue
        for surface_form in family.surface_forms:
            for difficulty in family.difficulties:
                items = tasks.draw_items(
                    name, "test", settings.test_items, difficulty, surface_form, settings.seed
                )
                items_by_prompt |= {item.prompt: item for item in items}
    return list(items_by_prompt.values())


def collect_answers(
    model: LlamaForCausalLM, name: str, settings: LabSettings, progress: Callable[[float], None]
) -> pd.DataFrame:
    """Evaluate a model on its test set with greedy decoding.

    Args:
        model: A lab model, a small model trained in this repository.
        name: Its name in the settings, the `method` of the rows.
        settings: Declared prices, the seed, and the size of the test set.
        progress: progress(fraction of replies) is called after every step of generation.

    Returns:
        A row for each item, with the columns of a results table: item (the prompt), group (task family), style
        (surface form), correct (0 or 1), reward (the verifier's score in [0, 1]), cost_usd and others. Further columns:
        difficulty, prompt, answer (the reference), reply, finish ("stop" or "length"), and confidence, the probability
        of the whole reply under the model.
    """
    items = draw_test_items(settings, name)
    price = compute_token_price(model, settings)
    prompts = [Prompt(tuple(encode_conversation(write_question(item))), LIMIT) for item in items]
    replies = generate(
        Forward(model),
        prompts,
        encode_special(EOS),
        progress=lambda num_finished: progress(num_finished / len(items)),
    )
    rows = []
    for item, prompt, reply in zip(items, prompts, replies, strict=True):
        text = decode(reply.reply_ids)
        # By declaration prompt tokens cost as much as reply tokens, but only reply tokens take time.
        num_tokens = len(prompt.ids) + len(reply.ids)
        rows.append(
            {
                "method": name,
                "item": item.prompt,
                "group": item.group,
                "style": item.surface_form,
                "temperature": 0.0,
                "correct": float(tasks.is_correct(item, text)),
                "reward": tasks.score_reply(item, text),
                "cost_usd": num_tokens * price.cost_usd,
                "seconds": len(reply.ids) * price.seconds,
                "tokens_in": len(prompt.ids),
                "tokens_out": len(reply.ids),
                "calls": 1,
                "difficulty": item.difficulty,
                "prompt": item.prompt,
                "answer": item.reference,
                "reply": text,
                "finish": reply.finish,
                "confidence": float(np.exp(np.sum(reply.logprobs))),
            }
        )
    return _make_result_rows(rows, settings.seed, "test")


def _make_result_rows(rows: Sequence[Mapping[str, Any]], seed: int, split: str) -> pd.DataFrame:
    """Make a results table of lab models, with the columns that are the same for all their replies.

    Args:
        rows: Values by column, a row for each reply.
        seed: Seed of the trained models.
        split: Split of the items, for example "test".

    Returns:
        The table; sample is 0 throughout, as greedy decoding gives one reply per item.
    """
    return pd.DataFrame(rows).assign(role="expert", backend="lab", seed=seed, split=split, sample=0)


def measure_model(
    job: sweep.Job, folder: Path, progress, model_folders: Mapping[str, str]
) -> dict[str, Any]:
    """Evaluate one lab model on its test set, and compute the price of its tokens: the function of a sweep's job.

    Args:
        job: Job of `make_measuring_job`, whose settings name the model.
        folder: The job's folder; answers.parquet is written into it.
        progress: progress(fraction of replies) is called as they come.
        model_folders: Folder of each trained model, by the model's name.

    Returns:
        "flops", "cost_usd" and "seconds" per token, and "parameters", the number of the model's parameters.
    """
    # One thread sums in one order, so numbers do not depend on the machine's load; jobs share the cores.
    torch.set_num_threads(1)
    # Denormal numbers are slow on a CPU and too small to matter.
    torch.set_flush_denormal(True)
    settings = LabSettings.from_job_settings(job.settings["lab"])
    name = job.settings["name"]
    model = checkpoints.load(model_folders[name])
    answers = collect_answers(model, name, settings, progress)
    artifacts.write_parquet(folder / "answers.parquet", answers)
    price = compute_token_price(model, settings)
    return asdict(price) | {"parameters": model.num_parameters()}


@dataclass(frozen=True)
class ModelMeasurements:
    """What was measured of all lab models.

    Attributes:
        answers: Rows of `collect_answers`.
        prices: By model.
        parameters: By model, how many it has.
    """

    answers: pd.DataFrame
    prices: dict[str, TokenPrice]
    parameters: dict[str, int]


def measure_models(
    settings: LabSettings, out: str | Path = MODELS, runs: str | Path = build.RUNS
) -> ModelMeasurements:
    """Evaluate every lab model on its test items, in parallel jobs, and write its card beside its weights.

    Args:
        settings: Names and settings of the lab models, small transformers that are trained here.
        out: Folder with a subfolder for each finished model; gets a card.json in each.
        runs: Folder of the training jobs, whose weights are measured.

    Returns:
        What was measured of all models.
    """
    # One job a model; a job that is done already is not repeated.
    jobs = []
    model_folders = {}
    for name in settings.models:
        training_job = build.make_training_job(settings, name)
        jobs.append(make_measuring_job(settings, name, training_job))
        model_folders[name] = str(training_job.folder(runs) / "model")
    work = partial(measure_model, model_folders=model_folders)
    runs = Path(runs) / "cards"
    receipts = sweep.run(work, jobs, runs, settings.jobs, "measuring the lab models")

    # Collect what the jobs left: tables of answers as files, prices as results in the receipts.
    answers = []
    prices = {}
    parameters = {}
    for name, job, receipt in zip(settings.models, jobs, receipts, strict=True):
        path = job.folder(runs) / "answers.parquet"
        answers.append(artifacts.read_parquet(path))
        price = dict(receipt["result"])
        parameters[name] = price.pop("parameters")
        prices[name] = TokenPrice(**price)
    all_answers = pd.concat(answers, ignore_index=True)
    measured = ModelMeasurements(all_answers, prices, parameters)
    for name, job in zip(settings.models, jobs, strict=True):
        card = make_card(measured, name)
        # The copy in the job's folder says later whether the one beside the weights is of these settings.
        artifacts.write_json(job.folder(runs) / "card.json", card)
        artifacts.write_json(Path(out) / name / "card.json", card)
    return measured


def make_measuring_job(settings: LabSettings, name: str, training_job: sweep.Job) -> sweep.Job:
    """Make the job (one cached run) that evaluates one lab model; its settings are the key of the cache.

    Args:
        settings: Settings of all lab models.
        name: Name of the model.
        training_job: The job that trained it.

    Returns:
        The job, for `measure_model`.
    """
    lab_settings = settings.to_job_settings("seed", "test_items", *_PRICE_SETTINGS)
    # Other models change nothing of its answers.
    lab_settings["models"] = {name: settings.models[name].model_dump()}
    model_settings = {
        "job": "measure",
        "name": name,
        "lab": lab_settings,
        "trained_by": training_job.key,
    }
    return sweep.Job(name, model_settings | {"versions": versions(name, settings)})


def versions(name: str, settings: LabSettings) -> dict[str, int]:
    """Collect the VERSION numbers of the modules that decide a model's answers and its price, for a cache key.

    Args:
        name: Name of the model.
        settings: Settings of all lab models.

    Returns:
        Version by name of the component, for example {"tokenizer": 1, ...}.
    """
    decided_by = {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,  # how a question is written
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "model cards": VERSION,
    }
    data_mixture = settings.models[name].data_mixture
    if any(component.family == decision_traces.FAMILY for component in data_mixture):
        decided_by["decision situations"] = decision_traces.VERSION
    return decided_by


def measure_calibration(answers: pd.DataFrame) -> dict[str, float]:
    """Measure how well one model's confidence predicts whether it is right.

    Args:
        answers: Rows of `collect_answers` of one model.

    Returns:
        confidence, accuracy: means; ece: expected calibration error over ten bins of equal width (Guo et al. 2017);
        brier: mean squared error of the confidence.
    """
    confidence = answers["confidence"].to_numpy()
    correct = answers["correct"].to_numpy(dtype=float)
    # ece = sum over bins of (fraction of replies in it) |mean confidence - accuracy|
    bins = np.minimum((confidence * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
    bin_errors = []
    for index in np.unique(bins):
        in_bin = bins == index
        error = abs(confidence[in_bin].mean() - correct[in_bin].mean())
        bin_errors.append(error * in_bin.mean())
    return {
        "confidence": float(confidence.mean()),
        "accuracy": float(correct.mean()),
        "ece": float(sum(bin_errors)),
        "brier": float(np.mean((confidence - correct) ** 2)),
    }


def make_card(measured: ModelMeasurements, name: str) -> dict[str, Any]:
    """Make the card of one lab model (a small transformer that was trained here) from what was measured of it.

    Args:
        measured: Answers to test items, prices of a token and numbers of parameters, of all models.
        name: Name of the model.

    Returns:
        JSON: number of parameters, price and speed of a token, calibration, accuracy with a 95 % interval by kind of
        task, and a description in one line. Jobs of other packages hash the file, so order and digits are part of it.
    """
    answers = measured.answers[measured.answers["method"] == name]
    price = measured.prices[name]
    accuracy_rows = []
    by_kind = answers.groupby(["group", "style", "difficulty"], sort=False)
    for (family, surface_form, difficulty), rows in by_kind:
        accuracy = stats.proportion_interval(int(rows["correct"].sum()), len(rows))
        # The keys of every card that was ever written: the family is `category`, the surface form `skin`.
        accuracy_rows.append(
            {
                "category": family,
                "skin": surface_form,
                "difficulty": difficulty,
                "n": len(rows),
                "accuracy": accuracy.value,
                "ci_low": accuracy.ci_low,
                "ci_high": accuracy.ci_high,
            }
        )
    return {
        "name": name,
        "parameters": measured.parameters[name],
        "flops_per_token": price.flops,
        "dollars_per_1k_tokens": 1000 * price.cost_usd,
        "tokens_per_second": 1 / price.seconds,
        "calibration": measure_calibration(answers),
        "accuracy": accuracy_rows,
        "description": write_description(answers, price),
    }


def write_description(answers: pd.DataFrame, price: TokenPrice) -> str:
    """Describe a model in one line for whoever chooses a tool: what it is good at, unsure of, poor at, price, speed.

    Args:
        answers: Rows of `collect_answers` of one model.
        price: Price of its tokens.

    Returns:
        One line.
    """
    kinds_by_verdict: dict[str, list[str]] = {"good at": [], "unsure of": [], "poor at": []}
    for (family, surface_form), rows in answers.groupby(["group", "style"], sort=False):
        kind = family if surface_form == "plain" else f"{family} ({surface_form})"
        accuracy = rows.groupby("difficulty")["correct"].mean()
        # A model is good up to a difficulty if it is good at every easier one, too.
        mastered = [
            difficulty
            for difficulty in accuracy.index
            if (accuracy[accuracy.index <= difficulty] >= GOOD).all()
        ]
        if mastered:
            if max(mastered) < accuracy.index.max():
                kind = f"{kind} up to difficulty {max(mastered)}"
            kinds_by_verdict["good at"].append(kind)
        elif accuracy.mean() >= POOR:
            kinds_by_verdict["unsure of"].append(kind)
        else:
            kinds_by_verdict["poor at"].append(kind)

    verdicts = [
        f"{verdict} {', '.join(kinds)}" for verdict, kinds in kinds_by_verdict.items() if kinds
    ]
    cost = f"${1000 * price.cost_usd:.2g} per 1,000 tokens"
    speed = f"{1 / price.seconds:.0f} tokens a second"
    return f"{'; '.join(verdicts)}; {cost}, {speed}"


def read_card(name: str, root: str | Path = MODELS) -> dict[str, Any]:
    """Read the card of a lab model: what was measured of its accuracy, calibration, speed and price.

    A lab model is a small transformer that was trained here; its card is card.json in the folder of its weights.

    Args:
        name: Name of the model, such as "lab-nano".
        root: Folder with a subfolder for each model.

    Returns:
        JSON, see `make_card`: number of parameters, flops_per_token, dollars_per_1k_tokens, tokens_per_second,
        calibration, accuracy (a list, by kind of task), and a description in one line.

    Raises:
        ModelError: Where the model has no card.
    """
    path = Path(root) / name / "card.json"
    if not path.is_file():
        raise checkpoints.ModelError(f"{path} is missing; measure the lab models with `make repro`")
    return artifacts.read_json(path)


def measure_by_temperature(
    models: Mapping[str, LlamaForCausalLM],
    difficulties: Mapping[str, int],
    temperatures: Sequence[float],
    settings: LabSettings,
) -> pd.DataFrame:
    """Test models on arithmetic chains ("3 + 4 * 2 = ?") at several sampling temperatures, one sample per item.

    Args:
        models: By name.
        difficulties: By name, the number of operations in the chains that the model is tested on.
        temperatures: Temperatures of sampling; 0 is greedy.
        settings: `test_items` is how many items each model gets.

    Returns:
        A results table, a row for each model, temperature and item, with the columns temperature and correct (0 or 1).
    """
    rows = []
    for name, difficulty in difficulties.items():
        items = tasks.draw_items("chain", "test", settings.test_items, difficulty, seed=2)
        forward = Forward(models[name])
        for temperature in temperatures:
            solved = find_solved_items(forward, items, temperature)  # (items,) bool
            for i, is_solved in enumerate(solved):
                rows.append(
                    {
                        "method": name,
                        "group": "chain",
                        "style": "plain",
                        "temperature": temperature,
                        "item": str(i),
                        "correct": float(is_solved),
                    }
                )
    return _make_result_rows(rows, settings.seed, "test")


def measure_first_turns(model: LlamaForCausalLM, name: str, settings: LabSettings) -> pd.DataFrame:
    """Test whether an agent model starts as a good agent would: by the same tool call, or with the same answer.

    The reference is the first assistant turn of a trace, a conversation that was written for training, of a dev item.

    Args:
        model: A model that was trained on agent traces.
        name: The model's name, the `method` of the rows.
        settings: `test_items` decides how many items; `seed` which.

    Returns:
        A results table, a row for each item: correct (0 or 1) says whether the turn agrees with the reference; turn is
        the role of the agent, such as "verifier", or "tool" where the reference is a tool call.
    """
    forward = Forward(model)
    rows = []
    for family in agent_traces.FAMILIES:
        difficulties = tasks.get_family(family).difficulties[:5]
        num_items = 5 * settings.test_items
        items = tasks.draw_items(family, "dev", num_items, difficulties, "any", settings.seed)
        turns = []
        for i, item in enumerate(items):
            # A stream per item: another number of items changes no trace.
            rng = seeds.rng("cards", "skills", family, seed=i)
            messages, tools = agent_traces.write_trace(item, rng)
            turns.append(agent_traces.get_first_turn(messages, tools))

        conversations = [encode_conversation(turn.messages, turn.tools) for turn in turns]
        checks = [partial(agent_traces.agrees_with_trace, target=turn.target) for turn in turns]
        agreements = verify_replies(forward, conversations, checks)  # (items,) bool
        for i, (turn, agrees) in enumerate(zip(turns, agreements, strict=True)):
            rows.append(
                {
                    "method": name,
                    "item": f"{family} {i}",
                    "group": family,
                    "temperature": 0.0,
                    "turn": turn.role,
                    "correct": float(agrees),
                }
            )
    return _make_result_rows(rows, settings.seed, "dev")


def measure_speed(model: LlamaForCausalLM, num_sequences: int, num_tokens: int = 48) -> float:
    """Measure how fast a model generates, by the wall clock of this machine.

    Args:
        model: A lab model.
        num_sequences: Generated side by side.
        num_tokens: New tokens of each.

    Returns:
        Tokens per second, of all sequences together.
    """
    question = [{"role": "user", "content": "1 + 2 = ?"}]
    ids = tuple(encode_conversation(question))
    prompts = [Prompt(ids, num_tokens, 1.0, seed) for seed in range(num_sequences)]
    forward = Forward(model)
    no_end = -1  # so that every sequence has all its tokens
    generate(forward, prompts, no_end)  # the first run warms caches
    started = time.perf_counter()
    generate(forward, prompts, no_end)
    seconds = time.perf_counter() - started
    return num_sequences * num_tokens / seconds


def replace_card_hashes(settings: dict[str, Any]) -> dict[str, Any]:
    """Replaces the hash of each expert's card in a job's settings by the expert's price.

    A card holds measured accuracies too, which no job reads and which differ between profiles and machines.

    Args:
        settings: Settings of a job; `models.weights` has the hashes of weights and card by name, where models are read.

    Returns:
        The settings, as the table of a full run keeps them.
    """
    if "models" not in settings:
        return settings
    models = dict(settings["models"])
    weights = {}
    prices = {}
    for name, (weights_hash, _) in models["weights"].items():
        weights[name] = weights_hash
        prices[name] = read_card(name, checkpoints.MODELS)["dollars_per_1k_tokens"]
    return settings | {"models": models | {"weights": weights, "dollars_per_1k_tokens": prices}}

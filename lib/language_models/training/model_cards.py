"""Model cards by measurement: what a model can do, how well it knows it, what a token costs.

A card is made from replies to test items and from counted floating point operations, nothing is
declared but the price of an operation and the clock. The text that menus of tools show is written from
the card's numbers by a fixed rule. Replies are rows of the record "lab"; estimates from them are left to
`lib.stats`.
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
from lib.experiment.seeds import rng
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.chat_template import conversation, token
from lib.language_models.checkpoints import LIMIT, MODELS
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode
from lib.language_models.training import agent_traces, build, decision_traces, training_data
from lib.language_models.training.pretraining import solved, verify_replies
from lib.language_models.training.training_data import question

VERSION = 1  # of replies to test items, prices and descriptions
_CONTEXT = 64  # tokens over which operations are counted
_PRICED = ("dollars_per_teraflop", "flops_per_second", "seconds_per_token")
GOOD, POOR = 0.75, 0.3  # accuracies between which a model is said to be unsure


@dataclass(frozen=True)
class TokenPrice:
    """flops: floating point operations per token, counted; dollars and seconds per token at the declared rates."""

    flops: float
    cost_usd: float
    seconds: float


def price(model: LlamaForCausalLM, settings: LabSettings) -> TokenPrice:
    """What one token of a model costs: its operations, counted over a forward pass of 64 tokens."""
    plain = sdpa_kernel(SDPBackend.MATH)  # the operations of the fused kernel are not counted
    with plain, FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=torch.zeros(1, _CONTEXT, dtype=torch.long))
    flops = counter.get_total_flops() / _CONTEXT
    seconds = settings.seconds_per_token + flops / settings.flops_per_second
    return TokenPrice(flops, flops / 1e12 * settings.dollars_per_teraflop, seconds)


def exam(settings: LabSettings, model: str) -> list[tasks.Item]:
    """The test items that a model is asked: all skins and difficulties of all families, none twice; decision
    situations only of a model that is taught them."""
    items: dict[str, tasks.Item] = {}
    taught = {course.family for course in settings.models[model].data_mixture}
    families = {
        name: each
        for name, each in tasks.FAMILIES.items()
        if name != decision_traces.FAMILY or name in taught
    }
    for name, family in families.items():
        for skin in family.skins:
            for difficulty in family.difficulties:
                drawn = tasks.draw(
                    name, "test", settings.test_items, difficulty, skin, seed=settings.seed
                )
                items |= {item.prompt: item for item in drawn}
    return list(items.values())


def answers(
    model: LlamaForCausalLM, name: str, settings: LabSettings, progress: Callable[[float], None]
) -> pd.DataFrame:
    """Greedy replies to the test items, as rows of the record "lab": the model is the method, a prompt the item, its
    category the group, its skin the style, the verifier's score the reward.

    Own columns: difficulty, prompt, answer, reply, finish ("stop" or "length"), and confidence, the probability that
    the model gives its own reply as a whole. progress: is told the share of replies that have come.
    """
    items, cost = exam(settings, name), price(model, settings)
    prompts = [Prompt(tuple(conversation(question(item))), LIMIT) for item in items]
    replies = generate(
        Forward(model), prompts, token(EOS), progress=lambda done: progress(done / len(items))
    )
    rows = []
    for item, prompt, reply in zip(items, prompts, replies, strict=True):
        text = decode(reply.written)
        used = len(prompt.ids) + len(reply.ids)
        rows.append(
            {
                "method": name,
                "item": item.prompt,
                "group": item.category,
                "style": item.skin,
                "temperature": 0.0,
                "correct": float(tasks.verify(item, text)),
                "reward": tasks.score(item, text),
                "cost_usd": used * cost.cost_usd,
                "seconds": len(reply.ids) * cost.seconds,
                "tokens_in": len(prompt.ids),
                "tokens_out": len(reply.ids),
                "calls": 1,
                "difficulty": item.difficulty,
                "prompt": item.prompt,
                "answer": item.answer,
                "reply": text,
                "finish": reply.finish,
                "confidence": float(np.exp(np.sum(reply.logprobs))),
            }
        )
    return _record(rows, settings.seed, "test")


def _record(rows: Sequence[Mapping[str, Any]], seed: int, split: str) -> pd.DataFrame:
    """Rows with what all that lab models say has in common: one training each, every item tried once."""
    return pd.DataFrame(rows).assign(
        role="expert", backend="lab", seed=seed, split=split, **{"sample": 0}
    )


def measure_model(
    job: sweep.Job, folder: Path, progress, model_folders: Mapping[str, str]
) -> dict[str, Any]:
    """Ask one model all test items; leaves its answers in `folder`. model_folders: of trained models, by name."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    settings, name = LabSettings.from_job_settings(job.settings["lab"]), job.settings["name"]
    model = checkpoints.load(model_folders[name])
    frame = answers(model, name, settings, progress)
    artifacts.write_parquet(folder / "answers.parquet", frame)
    return asdict(price(model, settings)) | {"parameters": model.num_parameters()}


@dataclass(frozen=True)
class Measured:
    """answers of all models, rows of the record "lab" (see `answers`); prices and numbers of parameters by name."""

    answers: pd.DataFrame
    prices: dict[str, TokenPrice]
    parameters: dict[str, int]


def measure(
    settings: LabSettings, out: str | Path = MODELS, runs: str | Path = build.RUNS
) -> Measured:
    """Measure every trained model and write its card beside its weights."""
    jobs, model_folders = [], {}
    for name in settings.models:
        training_job = build.make_training_job(settings, name)
        jobs.append(make_measuring_job(settings, name, training_job))
        model_folders[name] = str(training_job.folder(runs) / "model")
    work = partial(measure_model, model_folders=model_folders)
    runs = Path(runs) / "cards"
    receipts = sweep.run(work, jobs, runs, settings.jobs, "measuring the lab models")

    frames = [artifacts.read_parquet(job.folder(runs) / "answers.parquet") for job in jobs]
    found = {
        name: dict(receipt["result"])
        for name, receipt in zip(settings.models, receipts, strict=True)
    }
    parameters = {name: row.pop("parameters") for name, row in found.items()}
    measured = Measured(
        pd.concat(frames, ignore_index=True),
        {n: TokenPrice(**row) for n, row in found.items()},
        parameters,
    )
    for name in settings.models:
        artifacts.write_json(Path(out) / name / "card.json", card(measured, name))
    return measured


def make_measuring_job(settings: LabSettings, name: str, training_job: sweep.Job) -> sweep.Job:
    """The job that asks one model, which another job trained, all test items."""
    read = settings.to_job_settings("seed", "test_items", *_PRICED)
    read["models"] = {
        name: settings.models[name].model_dump()
    }  # other models change nothing of its answers
    model_settings = {"job": "measure", "name": name, "lab": read, "trained_by": training_job.key}
    return sweep.Job(name, model_settings | {"versions": versions(name, settings)})


def versions(name: str, settings: LabSettings) -> dict[str, int]:
    """The VERSIONs of the code that decides a model's answers and its price."""
    decided_by = {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,  # how a question is put
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "model cards": VERSION,
    }
    data_mixture = settings.models[name].data_mixture
    if any(component.family == decision_traces.FAMILY for component in data_mixture):
        decided_by["decision situations"] = decision_traces.VERSION
    return decided_by


def calibration(answers: pd.DataFrame) -> dict[str, float]:
    """How well one model's confidence tells its accuracy.

    confidence, accuracy: means; ece: expected calibration error over ten bins of equal width (Guo et al.
    2017); brier: mean squared error of the confidence.
    """
    sure, correct = answers["confidence"].to_numpy(), answers["correct"].to_numpy(dtype=float)
    bins = np.minimum((sure * 10).astype(int), 9)
    gaps = [
        abs(sure[bins == b].mean() - correct[bins == b].mean()) * (bins == b).mean()
        for b in np.unique(bins)
    ]
    brier = float(np.mean((sure - correct) ** 2))
    return {
        "confidence": float(sure.mean()),
        "accuracy": float(correct.mean()),
        "ece": float(sum(gaps)),
        "brier": brier,
    }


def card(measured: Measured, name: str) -> dict[str, Any]:
    """Everything that was measured of a model, and its description, ready for JSON."""
    mine, table = measured.answers[measured.answers["method"] == name], []
    for (category, skin, difficulty), rows in mine.groupby(
        ["group", "style", "difficulty"], sort=False
    ):
        share = stats.proportion_interval(
            int(rows["correct"].sum()), len(rows)
        )  # Wilson's: cells are named by these bytes
        place = {"category": category, "skin": skin, "difficulty": difficulty, "n": len(rows)}
        table.append(
            place | {"accuracy": share.value, "ci_low": share.ci_low, "ci_high": share.ci_high}
        )
    cost = measured.prices[name]
    return {
        "name": name,
        "parameters": measured.parameters[name],
        "flops_per_token": cost.flops,
        "dollars_per_1k_tokens": 1000 * cost.cost_usd,
        "tokens_per_second": 1 / cost.seconds,
        "calibration": calibration(mine),
        "accuracy": table,
        "description": describe(mine, cost),
    }


def describe(answers: pd.DataFrame, cost: TokenPrice) -> str:
    """What a menu of tools says about a model: good at, unsure of, poor at, price and speed."""
    said: dict[str, list[str]] = {"good at": [], "unsure of": [], "poor at": []}
    for (category, skin), group in answers.groupby(["group", "style"], sort=False):
        name = category if skin == "plain" else f"{category} ({skin})"
        by_difficulty = group.groupby("difficulty")["correct"].mean()
        held = [
            d
            for d in by_difficulty.index
            if (by_difficulty[by_difficulty.index <= d] >= GOOD).all()
        ]
        if held:
            full = max(held) == by_difficulty.index.max()
            said["good at"].append(name if full else f"{name} up to difficulty {max(held)}")
        else:
            said["unsure of" if by_difficulty.mean() >= POOR else "poor at"].append(name)
    words = [f"{verdict} {', '.join(names)}" for verdict, names in said.items() if names]
    return f"{'; '.join(words)}; ${1000 * cost.cost_usd:.2g} per 1,000 tokens, {1 / cost.seconds:.0f} tokens a second"


def read(name: str, root: str | Path = MODELS) -> dict[str, Any]:
    """A model's card. Raises ModelError where there is none."""
    path = Path(root) / name / "card.json"
    if not path.is_file():
        raise checkpoints.ModelError(f"{path} is missing; measure the lab models with `make repro`")
    return artifacts.read_json(path)


def heated(
    models: Mapping[str, LlamaForCausalLM],
    difficulty: Mapping[str, int],
    heats: Sequence[float],
    settings: LabSettings,
) -> pd.DataFrame:
    """Each model on chains of its difficulty at several temperatures, one sample per item, as record rows (right)."""
    rows = []
    for name, operations in difficulty.items():
        items = tasks.draw("chain", "test", settings.test_items, operations, seed=2)
        for temperature in heats:
            given = solved(Forward(models[name]), items, temperature)
            asked = {"method": name, "group": "chain", "style": "plain", "temperature": temperature}
            rows += [
                asked | {"item": str(i), "correct": float(correct)}
                for i, correct in enumerate(given)
            ]
    return _record(rows, settings.seed, "test")


def skills(model: LlamaForCausalLM, name: str, settings: LabSettings) -> pd.DataFrame:
    """Whether the agent model's first turn on dev items agrees with a trace's, the same call or the same answer, as
    record rows (right). Own column: turn, the role in which it was asked, or "tool" where the trace calls one."""
    forward, rows = Forward(model), []
    for family in agent_traces.FAMILIES:
        difficulties = tasks.family(family).difficulties[:5]
        items = tasks.draw(
            family, "dev", 5 * settings.test_items, difficulties, "any", seed=settings.seed
        )
        turns = [
            agent_traces.first_turn(
                *agent_traces.trace(item, rng("cards", "skills", family, seed=i))
            )
            for i, item in enumerate(items)
        ]
        asked = [conversation(turn.messages, turn.tools) for turn in turns]
        agrees = verify_replies(
            forward, asked, [partial(agent_traces.agrees, wanted=turn.wanted) for turn in turns]
        )
        rows += [
            {
                "method": name,
                "item": f"{family} {i}",
                "group": family,
                "temperature": 0.0,
                "turn": turn.kind,
                "correct": float(agreed),
            }
            for i, (turn, agreed) in enumerate(zip(turns, agrees, strict=True))
        ]
    return _record(rows, settings.seed, "dev")


def speed(model: LlamaForCausalLM, rows: int, tokens: int = 48) -> float:
    """Tokens per second of `rows` sequences generated at once, by the wall clock of this machine."""
    asked = tuple(conversation([{"role": "user", "content": "1 + 2 = ?"}]))
    prompts = [Prompt(asked, tokens, 1.0, seed) for seed in range(rows)]
    forward = Forward(model)
    generate(forward, prompts, end=-1)  # the first run warms caches
    started = time.perf_counter()
    generate(forward, prompts, end=-1)
    return rows * tokens / (time.perf_counter() - started)

"""Train a controller of one's own: `python -m lib train corl MODEL --data DATA --out FOLDER`.

MODEL is a folder with any causal language model of Hugging Face that follows instructions; the experts are those of
`routing.experts` in params.yaml, usually endpoints. DATA is whatever `lib.tasks.load` reads: a file with a prompt and a
reference in every row, files as published such as gsm8k:FOLDER, or a procedural family. --scorer says how an answer is
compared with its reference, and what in a reply is the answer. Settings are those of params.yaml at `paper` unless
--profile or --set say otherwise. Everything that belongs to a run lies under --out, what experts were asked and replied
among it (routing.jsonl); with --out of an earlier run it goes on from the last checkpoint, and pays for no reply twice.

On several GPUs: `accelerate launch -m lib.budgeted_routing ...`; every process then writes its share of the episodes.
What is under way is said at once and every ten seconds, for a large model takes minutes to one update. A call that the
experts' server failed is in no reward: its episode is left out, and many such calls end the run.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib import config
from lib.budgeted_routing.budget_episodes import BudgetTask, make_episode_rows, make_samples, roll
from lib.budgeted_routing.expert_outcomes import NAME
from lib.config import ParamsError
from lib.experiment import artifacts, seeds
from lib.language_models.local_models import fill_in_lab_prices, open_local
from lib.language_models.tokenizer import find_unknown_words
from lib.llm.cost_estimate import PlannedCalls, announce_costs, estimate_costs
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import InfrastructureError, LLMError
from lib.llm.open_models import export_recording, open_models
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertPool, ExpertQuery, derive_reply_seed
from lib.rl.generators import Hub
from lib.rl.token_ppo import TokenPPO
from lib.tasks import Dataset, Item, TaskError, load
from lib.tasks.scorers import SCORERS, make_scorer

PAUSE = 10.0  # seconds between two lines about what is under way
JUDGE = "judge:"  # a scorer that is a language model of llm.models
JUDGE_TOKENS = (
    600  # of a judge's instructions, and of an answer that it reads, beside question and reference
)
TRIAL_QUESTIONS = 8  # that every expert is asked before the training, to know what its calls cost
BUDGETS = {"low": 0.001, "medium": 0.006, "high": 1000.0}  # dollars per question (CoRL, appendix A)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lib train corl",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", help="folder of a Hugging Face causal language model with its tokenizer"
    )
    parser.add_argument(
        "--data",
        required=True,
        help="a file (.jsonl, .json, .csv, .tsv or .parquet), PRESET:PATH, or a procedural family",
    )
    parser.add_argument(
        "--prompt-column", help="of the file; default: prompt, question or another usual name"
    )
    parser.add_argument(
        "--reference-column", help="of the file; default: reference, answer or another usual name"
    )
    parser.add_argument("--split", help="train, dev or test, of data that has splits")
    parser.add_argument(
        "--scorer",
        help=f"one of {', '.join(SCORERS)}; default: the usual one of the data, exact for a file",
    )
    parser.add_argument(
        "--out", required=True, help="where the controller, its rollouts and checkpoints go"
    )
    parser.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="WORD=DOLLARS",
        dest="budgets",
        help="what low, medium or high is worth per question; default: as in the paper",
    )
    parser.add_argument(
        "--style",
        choices=("soft", "hard"),
        default="soft",
        help="of the prompt; default: %(default)s",
    )
    parser.add_argument(
        "--profile", choices=config.PROFILES, default="paper", help="default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a setting of routing, such as learn.kl=0.01; may be repeated",
    )
    return parser.parse_args(given)


def load_data(options: argparse.Namespace) -> Dataset:
    """The questions, with the name of the scorer.

    Args:
        options: The command line.

    Returns:
        The data set.

    Raises:
        TaskError: The data cannot be read, or say nothing that an answer could be scored by.
    """
    dataset = load(
        options.data,
        prompt_column=options.prompt_column,
        reference_column=options.reference_column,
        scorer=options.scorer,
        split=options.split,
    )
    if not dataset.scorer:
        raise TaskError(f"{options.data} has no usual scorer; name one, such as --scorer math")
    return dataset


def check_vocabulary(
    llm: config.LLMSettings, experts: Sequence[str], items: Sequence[Item]
) -> None:
    """Refuse questions that a lab model among the experts would read with holes.

    Args:
        llm: The models that there are.
        experts: Names of llm.models.
        items: The questions.

    Raises:
        ParamsError: Naming the first question and its unknown words.
    """
    lab_experts = [name for name in experts if llm.models[name].backend == "lab"]
    if not lab_experts:
        return
    for number, item in enumerate(items, start=1):
        words = find_unknown_words(item.prompt)
        if words:
            shown = ", ".join(repr(word) for word in words[:5])
            raise ParamsError(
                f"routing.experts: {', '.join(lab_experts)} are lab models, which know a few hundred words; question "
                f"{number} has {shown}; name other models of llm.models, --set 'experts={{...}}'"
            )


def changed(everything: config.Params, changes: list[str]) -> config.Params:
    """All parameters with changes to routing; all, because experts are named in another section."""
    content = everything.model_dump()
    content["routing"] = config.apply_changes("routing", content["routing"], changes)
    return config.validate_settings(content, config.Params, "with --set")


def budgets(given: list[str]) -> dict[str, float]:
    """What each word is worth. Raises ParamsError for another word or no number."""
    out = dict(BUDGETS)
    for one in given:
        word, _, cost_usd = one.partition("=")
        try:
            out[word] = float(cost_usd) if word in out else float("nan")
        except ValueError:
            out[word] = float("nan")
        if not out[word] >= 0:
            raise ParamsError(
                f"--budget {one}: write low, medium or high, =, and dollars per question"
            )
    if list(out.values()) != sorted(out.values()):
        raise ParamsError(f"--budget: low, medium and high must rise, got {out}")
    return out


class Clock:
    """Says what is under way: at once, and again after every PAUSE. A context manager: it owns a thread."""

    def __init__(self, doing: str, silent: bool = False) -> None:
        """doing: in a few words; it may be changed at any time."""
        self.doing, self.silent, self.began = doing, silent, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Clock:
        if not self.silent:
            print(f"{self.doing} ...", flush=True)
            self._thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self._over.set()
        if not self.silent:
            self._thread.join()

    def _tell(self) -> None:
        while not self._over.wait(PAUSE):
            print(f"{self.doing}, {time.monotonic() - self.began:.0f} s", flush=True)


def train(options: argparse.Namespace) -> pd.DataFrame:
    """Train, save, and return the rollouts of this process."""
    with Clock(f"reading {options.model}", silent=int(os.environ.get("RANK", "0")) > 0) as clock:
        return _train(options, clock)


def _train(options: argparse.Namespace, clock: Clock) -> pd.DataFrame:
    from accelerate import Accelerator

    # What is wrong with the input is said before anything large is read.
    if not (Path(options.model) / "config.json").is_file():
        raise ParamsError(f"{options.model} holds no model: there is no config.json in it")
    budget_usd = budgets(options.budgets)
    dataset = load_data(options)
    judges = [dataset.scorer.removeprefix(JUDGE)] if dataset.scorer.startswith(JUDGE) else []
    scorer = None if judges else make_scorer(dataset.scorer)
    params = changed(config.load(options.profile), options.changes)
    settings = params.routing
    expert_names = list(settings.experts.values())
    check_vocabulary(params.llm, expert_names, dataset.items)
    accelerator = Accelerator()
    rank = accelerator.process_index
    share, remainder = divmod(settings.batch, accelerator.num_processes)
    if remainder:
        raise ParamsError(
            f"{settings.batch} episodes cannot be shared by {accelerator.num_processes}; --set batch=..."
        )
    llm = select_models(params.llm, [*expert_names, *judges])
    out = Path(options.out)
    num_updates = settings.updates[options.style]
    if rank == 0:
        for note in dataset.notes:
            print(note)
        print(f"{len(dataset.items):,} questions, scored by {dataset.scorer}")
        print(plan_calls(llm, settings, dataset, num_updates, judges))

    names = [*expert_names, *judges]
    models = open_models(llm, names, NAME, out, out, accelerator.num_processes, open_local())
    temperature = settings.expert_temperature
    try:
        with ExpertPool(models, settings.experts, temperature, tells_rules=False) as pool:
            scorer = scorer or make_scorer(dataset.scorer, pool.models)
            clock.doing = "asking the experts what a call costs"
            protocol = call_protocol.explain_protocol(measure_call_costs(pool, dataset.items))
            clock.doing = f"reading {options.model}"
            controller = _Controller(options, settings, protocol, accelerator)
            learner = controller.learner
            while learner.step < num_updates:
                now = f"update {learner.step + 1}/{num_updates}"
                watch = partial(_writing, clock, f"{now}: turns of {share} episodes")
                controller.generator.watch = watch

                # Questions under budgets, both at random.
                key = (options.seed * 10**6 + learner.step) * 1_000 + rank
                rng = seeds.rng("routing", "own data", seed=key)
                words = [call_protocol.WORDS[index] for index in rng.integers(3, size=share)]
                chosen = rng.integers(len(dataset.items), size=share)
                budget_tasks = [
                    BudgetTask(dataset.items[index], options.style, word, budget_usd[word])
                    for index, word in zip(chosen, words, strict=True)
                ]

                # Roll out, log, learn.
                episodes = roll(
                    controller.generator,
                    pool,
                    budget_tasks,
                    settings.rounds,
                    key,
                    settings.temperature,
                    scorer,
                )
                controller.tables.append(make_episode_rows(episodes).assign(step=learner.step))
                clock.doing = f"{now}: learning from {share} episodes"
                samples = make_samples(episodes)
                if len(samples) > 1:
                    learner.update(samples)
                else:
                    learner.skip()
                if rank == 0:
                    line = describe_update(controller.tables[-1])
                    print(f"update {learner.step}/{num_updates}: {line}", flush=True)
                    if learner.step % settings.save_every == 0:
                        controller.save()
            if rank == 0:
                for expert, counts in pool.counts.items():
                    print(f"{expert}: {counts.describe()}")
    finally:
        if rank == 0:
            export_recording(llm, NAME, out)
    if rank == 0:
        controller.save()
    return pd.concat(controller.tables, ignore_index=True)


class _Controller:
    """The model in training: its generator, its learner, and the tables of its episodes.

    Attributes:
        generator: Writes turns.
        learner: Updates the weights.
        tables: Episodes of every update so far.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        settings: config.RoutingSettings,
        protocol: str,
        accelerator: Any,
    ) -> None:
        """Read the model, and the checkpoint of an earlier run.

        Raises:
            ParamsError: For a checkpoint that several processes cannot go on from.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.folder = Path(options.out)
        self.tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
        # Half precision would lose small steps.
        self.model = AutoModelForCausalLM.from_pretrained(
            options.model, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
        self.generator = Hub(
            self.model, self.tokenizer, settings.turn_tokens, settings.response_tokens, protocol
        )
        num_updates = settings.updates[options.style]
        pad_id = self.tokenizer.pad_token_id
        self.learner = TokenPPO(
            self.model, settings.learn, pad_id, num_updates, options.seed, accelerator
        )
        self.tables: list[pd.DataFrame] = []
        checkpoint = self.folder / "checkpoint.safetensors"
        if checkpoint.exists():
            if accelerator.num_processes > 1:
                raise ParamsError(
                    f"{checkpoint} can be gone on from by one process only; choose another --out"
                )
            self.learner.restore(checkpoint)
            # The table is written before the checkpoint, so it may know more.
            known_rows = artifacts.read_parquet(self.folder / "rollouts.parquet")
            self.tables.append(known_rows[known_rows["step"] < self.learner.step])

    def save(self) -> None:
        """Write the episodes, then the model, then the checkpoint."""
        rollouts = pd.concat(self.tables, ignore_index=True)
        artifacts.write_parquet(self.folder / "rollouts.parquet", rollouts)
        self.model.save_pretrained(self.folder / "controller")
        self.tokenizer.save_pretrained(self.folder / "controller")
        self.learner.save(self.folder / "checkpoint.safetensors")


def measure_call_costs(pool: ExpertPool, items: Sequence[Item]) -> dict[str, float]:
    """What a call to each expert costs, by asking each of them a few of the questions.

    Args:
        pool: The experts. What they reply here is recorded and never paid for again.
        items: The questions.

    Returns:
        Mean dollars of a call by expert.

    Raises:
        InfrastructureError: Where no call to an expert came back.
    """
    trial_items = items[:TRIAL_QUESTIONS]
    costs = {}
    for expert in pool.model_names:
        queries = [
            ExpertQuery(expert, item.prompt, derive_reply_seed(item.prompt), item.history)
            for item in trial_items
        ]
        billed = [reply.cost_usd for reply in pool.ask(queries) if not reply.lost]
        if not billed:
            raise InfrastructureError(
                f"{expert}: none of {len(queries)} trial calls came back; check its server and run again"
            )
        costs[expert] = float(np.mean(billed))
    return costs


def _writing(clock: Clock, doing: str, done: int, total: int) -> None:
    clock.doing = f"{doing}, {done} of {total} written"


def select_models(llm: config.LLMSettings, names: Sequence[str]) -> config.LLMSettings:
    """The settings with these models alone; lab models, which need `make repro` first, cost what their cards say.

    Args:
        llm: The models that there are.
        names: Of llm.models.

    Returns:
        The settings.

    Raises:
        ParamsError: For a name that is not there.
        ModelError: For a lab model that was never measured.
    """
    unknown = [name for name in names if name not in llm.models]
    if unknown:
        raise ParamsError(
            f"there is no model {unknown[0]!r}; llm.models has {', '.join(llm.models)}"
        )
    selected = {name: llm.models[name] for name in names}
    return fill_in_lab_prices(llm.model_copy(update={"models": selected}))


def plan_calls(
    llm: config.LLMSettings,
    settings: config.RoutingSettings,
    dataset: Dataset,
    num_updates: int,
    judges: Sequence[str] = (),
) -> str:
    """How many calls a training makes at most, and what they may cost.

    Args:
        llm: With the prices.
        settings: Of the training.
        dataset: Its questions, whose lengths are counted.
        num_updates: That are still to be made.
        judges: Names in llm.models of those that grade every answer.

    Returns:
        A sentence for the terminal.
    """
    question_tokens = np.array(
        [
            estimate_tokens(sum(count_bytes(message["content"]) for message in item.messages))
            for item in dataset.items
        ]
    )
    num_episodes = num_updates * settings.batch
    num_calls = num_episodes * (settings.rounds - 1)
    num_trial_calls = min(TRIAL_QUESTIONS, len(dataset.items))
    # The question as it stands or one that the controller writes, whichever is longer.
    prompt_tokens = np.maximum(question_tokens, settings.turn_tokens).mean()
    plans = []
    for name in dict.fromkeys(settings.experts.values()):
        tokens_out = num_calls * llm.models[name].max_tokens
        plans.append(PlannedCalls(name, num_calls, round(num_calls * prompt_tokens), tokens_out))
    # Every call may go to the same expert, but to one only: the most expensive endpoint among them.
    costs = estimate_costs(llm, plans)["cost_usd"].tolist()[: len(plans)]
    is_endpoint = [llm.models[plan.model].backend == "endpoint" for plan in plans]
    index = max(range(len(plans)), key=lambda number: (is_endpoint[number], costs[number]))
    planned = [plans[index]]
    for name in settings.experts.values():
        trial_tokens_in = round(num_trial_calls * question_tokens.mean())
        trial_tokens_out = num_trial_calls * llm.models[name].max_tokens
        planned.append(PlannedCalls(name, num_trial_calls, trial_tokens_in, trial_tokens_out))
    for name in judges:
        judged_tokens = round(num_episodes * (question_tokens.mean() + JUDGE_TOKENS))
        tokens_out = num_episodes * llm.models[name].max_tokens
        planned.append(PlannedCalls(name, num_episodes, judged_tokens, tokens_out))
    return announce_costs(llm, planned)


def describe_update(rows: pd.DataFrame) -> str:
    """One update in a line."""
    means = rows[["reward", "correct", "within", "calls", "malformed"]].mean()
    line = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
    line += f", ${rows['cost_usd'].mean():.2g}"
    losses = {
        "lost": rows["correct"].isna().sum(),
        "replies cut off by the expert's limit": rows["truncated"].sum(),
        "replies shortened for the controller": rows["shortened"].sum(),
    }
    return line + "".join(f", {count} {name}" for name, count in losses.items() if count)


def main(given: list[str] | None = None) -> int:
    """Run; mistakes in the input end in one line and the code 2."""
    options = arguments(given)
    try:
        rollouts = train(options)
    except (BudgetExceeded, LLMError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"stopped; run the same command to go on from the last checkpoint in {options.out}",
            file=sys.stderr,
        )
        return 130
    if int(os.environ.get("RANK", "0")) == 0:
        by_word = rollouts.groupby("condition")[
            ["reward", "correct", "within", "calls", "cost_usd"]
        ].mean()
        print(by_word.round(4).to_string())
        print(f"controller: {Path(options.out) / 'controller'}")
    return 0

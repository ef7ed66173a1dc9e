"""Train a controller of one's own: `python -m lib train corl MODEL --data FILE --out FOLDER`.

MODEL is a folder with any causal language model of Hugging Face that follows instructions; the experts are those of
`routing.experts` in params.yaml, usually endpoints. Settings are those of params.yaml at `paper` (CoRL, appendix A)
unless --profile or --set say otherwise. An answer is right where it equals the reference. With --out of an earlier run
it goes on from the last checkpoint. On several GPUs: `accelerate launch -m lib.budgeted_routing ...`; every process
then writes its share of the episodes. What is under way is told at once and every ten seconds, for a large model
takes minutes to one update.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from lib import config, tasks
from lib.budgeted_routing.budget_episodes import BudgetTask, roll
from lib.budgeted_routing.experiment import CASSETTES, NAME, episode_rows, samples
from lib.config import ParamsError
from lib.experiment import artifacts, seeds
from lib.language_models.serving.transport import lab
from lib.llm.client_factory import export, opened
from lib.llm.cost_estimate import Planned, announcement
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import CassetteMiss, ConfigurationError
from lib.rl import call_protocol
from lib.rl.expert_pool import Pool
from lib.rl.generators import Hub
from lib.rl.token_ppo import TokenPPO
from lib.tasks import Item, TaskError, user_data

PAUSE = 10.0  # seconds between two lines about what is under way
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
        "--data", required=True, help=".jsonl, .csv or .parquet with columns prompt and reference"
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


def questions(path: str | Path) -> list[Item]:
    """Rows of a file as items. Raises TaskError for what `lib.tasks.user_data.rows` refuses, and for prompts of
    messages."""
    table = user_data.rows(path)
    texts = table["prompt"].map(lambda prompt: isinstance(prompt, str))
    if not texts.all():
        raise TaskError(
            f"{path}, row {int(texts.to_numpy().argmin())}: the prompt is to be text here, not messages"
        )
    return [
        Item(row.prompt, row.reference, "", "data", 1, row.prompt) for row in table.itertuples()
    ]


def exact(item: Item, reply: str) -> float:
    """r_p: 1 where the answer in its tags is the reference, white space aside."""
    given = tasks.answered(reply)
    return float(given is not None and " ".join(given.split()) == " ".join(item.answer.split()))


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
    from transformers import AutoModelForCausalLM, AutoTokenizer

    user_data.model(options.model)
    worth, items = budgets(options.budgets), questions(options.data)
    everything = changed(config.load(options.profile), options.changes)
    settings = everything.routing
    accelerator = Accelerator()
    share, rest = divmod(settings.batch, accelerator.num_processes)
    if rest:
        raise ParamsError(
            f"{settings.batch} episodes cannot be shared by {accelerator.num_processes}; --set batch=..."
        )
    llm, transports = _experts(everything)
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    given = {
        "local_files_only": True,
        "use_safetensors": True,
        "dtype": torch.float32,
    }  # halves lose small steps
    model = AutoModelForCausalLM.from_pretrained(options.model, **given)
    asked = {word: llm.models[name] for word, name in settings.experts.items()}
    prices = {
        word: max(about.price_in or 0.0, about.price_out or 0.0) for word, about in asked.items()
    }
    voice = Hub(
        model,
        tokenizer,
        settings.turn_tokens,
        settings.response_tokens,
        call_protocol.explained(prices),
    )
    total, rank, out = settings.updates["soft"], accelerator.process_index, Path(options.out)
    learner = TokenPPO(
        model, settings.learn, tokenizer.pad_token_id, total, options.seed, accelerator
    )
    checkpoint, tables = out / "checkpoint.safetensors", []
    if checkpoint.exists():
        if accelerator.num_processes > 1:
            raise ParamsError(
                f"{checkpoint} can be gone on from by one process only; choose another --out"
            )
        learner.restore(checkpoint)
        known = artifacts.read_parquet(out / "rollouts.parquet")
        tables.append(known[known["step"] < learner.step])  # it is written before the checkpoint

    if rank == 0:  # every call may go to the same expert
        calls = (total - learner.step) * settings.batch * (settings.rounds - 1)
        tokens = {name: calls * llm.models[name].max_tokens for name in settings.experts.values()}
        print(
            announcement(
                llm,
                [
                    Planned(n, calls, calls * settings.turn_tokens, most)
                    for n, most in tokens.items()
                ],
            )
        )

    def save() -> None:
        if rank == 0:
            artifacts.write_parquet(out / "rollouts.parquet", pd.concat(tables, ignore_index=True))
            model.save_pretrained(out / "controller")
            tokenizer.save_pretrained(out / "controller")
            learner.save(checkpoint)

    try:
        client = partial(opened, llm, NAME, out, CASSETTES, transports=transports)
        with Pool(client, settings.experts, settings.expert_temperature, rules="") as pool:
            while learner.step < total:
                now = f"update {learner.step + 1}/{total}"
                voice.watch = partial(_writing, clock, f"{now}: turns of {share} episodes")
                key = (options.seed * 10**6 + learner.step) * 1_000 + rank
                rng = seeds.rng("routing", "own data", seed=key)
                words = [call_protocol.WORDS[i] for i in rng.integers(3, size=share)]
                chosen = [items[i] for i in rng.integers(len(items), size=share)]
                asked = [
                    BudgetTask(i, options.style, w, worth[w])
                    for i, w in zip(chosen, words, strict=True)
                ]
                episodes = roll(
                    voice, pool, asked, settings.rounds, key, settings.temperature, exact
                )
                tables.append(episode_rows(episodes).assign(step=learner.step))
                clock.doing = f"{now}: learning from {share} episodes"
                learner.update(samples(episodes))
                if rank == 0:
                    print(f"update {learner.step}/{total}: {told(tables[-1])}", flush=True)
                if learner.step % settings.save_every == 0:
                    save()
    finally:
        export(everything.llm, NAME, CASSETTES)
    save()
    return pd.concat(tables, ignore_index=True)


def _writing(clock: Clock, doing: str, done: int, total: int) -> None:
    clock.doing = f"{doing}, {done} of {total} written"


def _experts(everything: config.Params) -> tuple[config.LLMSettings, dict]:
    """Settings with prices, and transports: lab models need `make repro` first, and cost what their cards say."""
    llm = everything.llm
    if any(llm.models[name].backend == "lab" for name in everything.routing.experts.values()):
        return lab(llm)
    return llm, {}


def told(rows: pd.DataFrame) -> str:
    """One update in a line."""
    means = rows[["reward", "correct", "within", "calls", "malformed"]].mean()
    return (
        ", ".join(f"{name} {value:.2f}" for name, value in means.items())
        + f", ${rows['cost_usd'].mean():.2g}"
    )


def main(given: list[str] | None = None) -> int:
    """Run; mistakes in the input end in one line and the code 2."""
    options = arguments(given)
    try:
        rollouts = train(options)
    except (BudgetExceeded, CassetteMiss, ConfigurationError, OSError, ValueError) as error:
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

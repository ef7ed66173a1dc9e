"""Compare a trained policy with its start: `python -m lib evaluate maestro START POLICY --data TEST --out FOLDER`.

Both answer the same prompts with the same seeds, --samples times each. Printed are the share of replies in form, the
share whose answer is the reference, their length, and the differences with intervals over prompts. With --judge NAME, a
model of llm.models, also points (the judge calls a reply good) and votes between both replies to a prompt, each by
majority of three, as in appendix D of MAESTRO. Replies are kept under --out, so a run that was stopped goes on.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset

from lib import config, stats
from lib.conductor import data
from lib.conductor.judge_costs import announce_votes
from lib.conductor.llm_judge import vote_by_majority
from lib.conductor.reply_format import is_well_formed
from lib.conductor.reward_scale import sample_plain_replies
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.training_presets import find_preset, read_prompts
from lib.config import Params, ParamsError
from lib.experiment import artifacts, results_table
from lib.language_models.local_models import open_local
from lib.llm.open_models import export_recording, open_models
from lib.rl.user_training.training import run_command
from lib.tasks.item import answers_match, extract_answer

RECORDING = "conductor"  # name of the judge's recording and spending limit under --out
START, TRAINED = "start", "trained"
MEASURES = ("correct", "in_form", "tokens_out", "points", "votes")


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib evaluate maestro",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("start", help="folder of the model before training")
    parser.add_argument("policy", help="folder of the model after training, such as OUT/policy")
    parser.add_argument(
        "--data", required=True, help="held-out prompts, as `train maestro` takes them"
    )
    parser.add_argument("--prompt-column", metavar="NAME", help="of a file, with the question")
    parser.add_argument("--reference-column", metavar="NAME", help="of a file, with the answer")
    parser.add_argument("--out", required=True, help="where replies, scores and votes go")
    parser.add_argument("--judge", help="name of llm.models in params.yaml")
    parser.add_argument(
        "--prompts", type=int, default=200, metavar="N", help="at the most; default: %(default)s"
    )
    parser.add_argument(
        "--samples", type=int, default=3, help="replies per prompt; default: %(default)s"
    )
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="of the sampling; default: %(default)s"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="of a reply; default: the data set's"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m lib evaluate maestro`.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 2 for a mistake in the input or a spending limit (one line on the terminal), 130 for Ctrl-C.
    """
    return run_command(read_options(argv), evaluate_and_report)


def evaluate_and_report(options: argparse.Namespace) -> None:
    """Collect the replies of both models, score them, and print the table.

    Args:
        options: Options of the command line.
    """
    params = config.load("paper")
    if options.judge is not None and options.judge not in params.llm.models:
        raise ParamsError(
            f"--judge {options.judge}: llm.models in params.yaml has {sorted(params.llm.models)}"
        )
    with silence_libraries():
        replies = collect_replies(options)
    scores = score_replies(replies)
    if options.judge is not None:
        scores = add_votes(scores, replies, params, options)
    artifacts.write_parquet(Path(options.out) / "scores.parquet", scores)
    print(summarize(scores).to_string())


def collect_replies(options: argparse.Namespace) -> pd.DataFrame:
    """Sample the replies of both models to the prompts; those that were sampled before are read from their file.

    Args:
        options: Options of the command line.

    Returns:
        A row per model, prompt and sample: method, item, sample, question, reference, reply, tokens_out.
    """
    out = Path(options.out)
    preset, _ = find_preset(options.data)
    max_tokens = options.max_tokens or preset.max_tokens
    rows = read_prompts(options.data, options.prompt_column, options.reference_column)
    rows = rows.head(options.prompts)
    tables = []
    for method, folder in ((START, options.start), (TRAINED, options.policy)):
        path = out / f"replies_{method}.parquet"
        if not path.exists():
            table = _sample_replies(folder, rows, options, max_tokens).assign(method=method)
            artifacts.write_parquet(path, table)
        tables.append(artifacts.read_parquet(path))
    return pd.concat(tables, ignore_index=True)


def _sample_replies(
    folder: str, rows: pd.DataFrame, options: argparse.Namespace, max_tokens: int
) -> pd.DataFrame:
    """Sample replies of one model to all prompts.

    Args:
        folder: Folder of the model.
        rows: The prompts, with their references.
        options: Number of samples, temperature and seed.
        max_tokens: Length of a reply at the most.

    Returns:
        A row per prompt and sample, with question, reference, reply and its number of tokens.
    """
    tokenizer = data.read_tokenizer(folder)
    dataset = data.prepare_prompts(
        Dataset.from_dict(rows.to_dict("list")), tokenizer.chat_template is not None
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tables = []
    for sample in range(options.samples):
        print(f"{folder}: sample {sample + 1} of {options.samples} of each reply")
        replies = sample_plain_replies(
            folder,
            tokenizer,
            list(dataset["prompt"]),
            max_tokens,
            options.temperature,
            options.seed * options.samples + sample,  # both models get the same seeds
            device,
        )
        questions = [_get_question(prompt) for prompt in dataset["prompt"]]
        num_tokens = [len(tokenizer(reply)["input_ids"]) for reply in replies]
        tables.append(
            pd.DataFrame(
                {
                    "item": range(len(replies)),
                    "sample": sample,
                    "question": questions,
                    "reference": rows["reference"].tolist(),
                    "reply": replies,
                    "tokens_out": num_tokens,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def _get_question(prompt) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def score_replies(replies: pd.DataFrame) -> pd.DataFrame:
    """Score replies against the reference answers, without a judge.

    Args:
        replies: A row per model, prompt and sample, with reply and reference.

    Returns:
        The identity of each reply with tokens_out, in_form (1 where it is well-formed) and correct (1 where its
        answer is the reference).
    """
    correct = []
    in_form = []
    for reply, reference in zip(replies["reply"], replies["reference"], strict=True):
        correct.append(float(answers_match(reference, extract_answer(reply) or "")))
        in_form.append(float(is_well_formed(reply)))
    identity = replies[["method", "item", "sample", "tokens_out"]]
    return identity.assign(correct=correct, in_form=in_form, seed=0, role="paper")


def add_votes(
    scores: pd.DataFrame, replies: pd.DataFrame, params: Params, options: argparse.Namespace
) -> pd.DataFrame:
    """Let the judge decide whether each reply is good, and which of two replies is better.

    Args:
        scores: What `score_replies` returned.
        replies: What `collect_replies` returned.
        params: The judge's settings, and the spending limit.
        options: Options of the command line.

    Returns:
        The scores with points, 1 for a good reply, and votes, 1 for the better one and 1/2 for a tie. A verdict that
        is lost counts as a tie, and as 0 points.
    """
    out = Path(options.out)
    open_judge = partial(
        open_models, params.llm, [options.judge], RECORDING, out, out, open_local=open_local()
    )
    keys = ["item", "sample", "question", "reference"]
    pairs = replies[replies["method"] == TRAINED].merge(
        replies[replies["method"] == START], on=keys, suffixes=("", "_start")
    )
    questions = pairs["question"].tolist()
    references = pairs["reference"].tolist()
    trained = pairs["reply"].tolist()
    start = pairs["reply_start"].tolist()
    costs = announce_votes(
        params.llm, options.judge, open_judge, questions, references, trained, start
    )
    print(costs or "no endpoint is asked; nothing is paid")
    vote = partial(vote_by_majority, open_judge, options.judge, questions, references)
    try:
        is_good = {TRAINED: vote(trained), START: vote(start)}
        is_better = vote(trained, start)
    finally:
        export_recording(params.llm, RECORDING, out)

    # (pairs,) 1 where the trained policy's reply is better; equal replies and lost verdicts count one half each.
    votes = np.array([0.5 if vote is None else float(vote) for vote in is_better])
    tables = []
    for method, method_votes in ((TRAINED, votes), (START, 1 - votes)):
        points = [float(verdict is True) for verdict in is_good[method]]
        table = pairs[["item", "sample"]].assign(method=method, points=points, votes=method_votes)
        tables.append(table)
    return scores.merge(pd.concat(tables), on=["method", "item", "sample"], validate="one_to_one")


def summarize(scores: pd.DataFrame) -> pd.DataFrame:
    """Estimate the means of both models and their difference, with 95 % intervals over prompts.

    Args:
        scores: Scores of `score_replies` or `add_votes`.

    Returns:
        A row per measure, as texts.
    """
    rows = results_table.make_results("conductor", scores.assign(item=scores["item"].astype(str)))
    table = {}
    for measure in MEASURES:
        if measure not in scores:
            continue
        means = stats.intervals(stats.mean(rows, measure, "method"))
        difference = stats.paired_difference(rows, measure, {"method": TRAINED}, {"method": START})
        table[measure] = {
            START: means[START],
            TRAINED: means[TRAINED],
            "difference": stats.intervals(difference).iloc[0],
            "verdict": stats.verdict(difference).iloc[0],
        }
    return pd.DataFrame(table).T.rename_axis("measure")

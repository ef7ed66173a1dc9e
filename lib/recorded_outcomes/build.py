"""Makes `data/outcomes` from tables of facts and the prompts behind them: `python -m lib.recorded_outcomes.build
SOURCE`.

Facts only are kept: who was asked what, whether it was right, what it cost or how long it was. Prompts are not
shipped. With `--model`, a folder of all-MiniLM-L6-v2, sentence embeddings of them are computed (mean of the last
layer's states over at most 256 tokens, unit length), turned to their principal axes (fitted on all prompts of a
table, no outcome is looked at), and kept as small integers. Rows that `PROVENANCE.md` says to drop are dropped here:
stems of a private hold-out, test copies of training prompts, contaminated prompts, repeats, broken exports.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib.config import ROOT
from lib.experiment import artifacts

PLACE = ROOT / "data/outcomes"
DIMS = 64  # principal axes that are kept
STEPS = 127  # the largest entry of a table, as an integer
TOKENS = 256  # of a prompt that the encoder reads, as its card says
_AT_ONCE = 32
_PROMPTS = {  # table: the file of its prompts, and the benchmark's name in it
    "llmrouter": "llmrouter_prompts.jsonl", "gsm": "zeroeval_gsm_prompts.jsonl",
    "crux": "zeroeval_crux_prompts.jsonl", "routellm": "routellm_prompts.jsonl",
}  # fmt: skip


def openhands(source: Path) -> pd.DataFrame:
    """Agents x issues of five benchmarks, with the source's estimate of dollars. Items that no run could solve were
    left out by the source's own list."""
    rows = pd.read_parquet(source / "openhands.parquet")
    rows = rows[rows["benchmark"] != "swe-bench-multimodal-unsolveable"]
    correct = rows["resolved"].astype("boolean").astype("float32")
    return rows.assign(resolved=correct).drop(columns="harness_version")


def llmrouter(source: Path) -> pd.DataFrame:
    """Nine models x queries of 14 tasks; each prompt once."""
    rows = pd.read_parquet(source / "llmrouter.parquet")
    rows = rows[~rows["mmlu_holdout_stem"] & ~((rows["split"] == "test") & rows["in_other_split"])]
    return rows[["item", "task", "prompt_chars", "model", "score"]]


def zeroeval(source: Path, table: str) -> pd.DataFrame:
    """Models x questions with the length of replies; without runs that lack questions."""
    rows = pd.read_parquet(source / f"zeroeval_{table}.parquet")
    asked = rows.groupby("model", observed=True)["item"].transform("size")
    return rows[asked == rows["item"].nunique()]


def routellm(source: Path) -> pd.DataFrame:
    """Two models x questions of 45 subjects and of GSM8K, where right is the own reading of the reply (the source's
    takes "$20.00" for 0); without contaminated prompts and repeats."""
    rows = pd.read_parquet(source / "routellm.parquet")
    own = rows["correct_regraded"].astype("boolean")
    rows = rows.assign(right=own.fillna(rows["correct"]).astype(bool))
    prompts = pd.read_json(source / _PROMPTS["routellm"], lines=True).drop_duplicates("prompt")
    rows = rows[~rows["contaminated"] & rows["item"].isin(prompts["item"])]
    return rows[["table", "group", "item", "prompt_chars", "model", "right"]]


def facts(source: Path) -> dict[str, pd.DataFrame]:
    """Every table, by name, sorted, with words as categories."""
    made = {
        "openhands": openhands(source),
        "llmrouter": llmrouter(source),
        "routellm": routellm(source),
    }
    made |= {name: zeroeval(source, name) for name in ("gsm", "crux")}
    return {name: _tidy(rows) for name, rows in made.items()}


def _tidy(rows: pd.DataFrame) -> pd.DataFrame:
    for name in rows.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in rows.dtypes]]:
        rows = rows.assign(**{name: rows[name].astype(str).astype("category")})
    keys = [name for name in ("table", "benchmark", "item", "harness", "model") if name in rows]
    return rows.sort_values(keys, kind="stable").reset_index(drop=True)


def embed(prompts: Sequence[str], folder: Path) -> np.ndarray:
    """Sentence embeddings (n, d) of unit length: states of the last layer, averaged over a prompt's tokens."""
    import torch  # imported here: facts need neither
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder).eval(),
    )
    out = np.zeros((len(prompts), model.config.hidden_size), dtype=np.float32)
    order = np.argsort([len(prompt) for prompt in prompts], kind="stable")  # little padding
    for rows in np.array_split(order, -(-len(order) // _AT_ONCE)):
        asked = {"padding": True, "truncation": True, "max_length": TOKENS, "return_tensors": "pt"}
        given = tokenizer([prompts[i] for i in rows], **asked)
        with torch.inference_mode():
            states = model(**given).last_hidden_state
        mask = given["attention_mask"][:, :, None]
        means = (states * mask).sum(1) / mask.sum(1)
        out[rows] = torch.nn.functional.normalize(means, dim=1).numpy()
    return out


def reduced(vectors: np.ndarray, dims: int = DIMS) -> tuple[np.ndarray, float]:
    """Vectors (n, d) along their first principal axes as integers (n, dims) of -STEPS to STEPS, and the share of the
    variance that they hold. An axis points to where its largest entry is positive."""
    centred = vectors.astype(float) - vectors.mean(0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    axes = (
        axes[:dims]
        * np.sign(axes[np.arange(min(dims, len(axes))), np.abs(axes[:dims]).argmax(1)])[:, None]
    )
    found = centred @ axes.T
    kept = float((spread[:dims] ** 2).sum() / (spread**2).sum())
    return np.round(found * (STEPS / np.abs(found).max())).astype(np.int8), kept


def embeddings(source: Path, table: str, folder: Path, kept: pd.Series) -> pd.DataFrame:
    """Item and its reduced embedding e00, e01, ..., for the items of a table that are kept."""
    with open(source / _PROMPTS[table], encoding="utf-8") as lines:
        prompts = {row["item"]: row["prompt"] for row in map(json.loads, lines)}
    items = sorted(set(kept.astype(str)))
    numbers, share = reduced(embed([prompts[item] for item in items], folder))
    print(
        f"{table}: {len(items)} prompts, {share:.0%} of the variance in {numbers.shape[1]} numbers"
    )
    named = {f"e{i:02d}": numbers[:, i] for i in range(numbers.shape[1])}
    return pd.DataFrame({"item": items} | named)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables and, with --model, the embeddings."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.recorded_outcomes.build", description=main.__doc__
    )
    parser.add_argument(
        "source", type=Path, help="folder with the tables of facts and *_prompts.jsonl"
    )
    parser.add_argument(
        "--model",
        type=Path,
        help="folder of all-MiniLM-L6-v2 (config, tokenizer, model.safetensors)",
    )
    parser.add_argument("--out", type=Path, default=PLACE)
    options = parser.parse_args(arguments)
    made = facts(options.source)
    for name, rows in made.items():
        artifacts.write_parquet(options.out / f"{name}.parquet", rows)
    for name in _PROMPTS if options.model else ():
        artifacts.write_parquet(
            options.out / f"{name}_embeddings.parquet",
            embeddings(options.source, name, options.model, made[name]["item"]),
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

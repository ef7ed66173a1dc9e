"""Makes `data/outcomes` from tables of facts and the prompts behind them: `python -m lib.recorded_outcomes.build
SOURCE`.

Only facts are stored: which model was asked what, whether it was correct, what it cost or how long it was. Prompts are
not shipped. With `--model`, a folder of all-MiniLM-L6-v2, sentence embeddings of them are computed (mean of the last
layer's states over at most 256 tokens, unit length), rotated to their principal axes (fitted on all prompts of a table,
no outcome is looked at), and stored as small integers. Rows that `PROVENANCE.md` says to drop are dropped here: stems
of a private hold-out, test copies of training prompts, contaminated prompts, repeats, broken exports.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from lib.config import ROOT
from lib.experiment import artifacts

OUTPUT_FOLDER = ROOT / "data/outcomes"
NUM_AXES = 64  # principal axes that are stored
MAX_INTEGER = 127  # the largest entry of a table of embeddings, stored as 8-bit integers
MAX_TOKENS = 256  # of a prompt that the encoder reads, as its model card says
_BATCH_SIZE = 32
_PROMPT_FILES = {  # by table
    "llmrouter": "llmrouter_prompts.jsonl", "gsm": "zeroeval_gsm_prompts.jsonl",
    "crux": "zeroeval_crux_prompts.jsonl", "routellm": "routellm_prompts.jsonl",
}  # fmt: skip


def select_openhands(source: Path) -> pd.DataFrame:
    """Selects coding agents on the issues of five benchmarks, with the source's estimate of the cost.

    As in the source, items that no run could solve are left out.

    Args:
        source: Folder of the source's tables.

    Returns:
        A row per run and issue.
    """
    rows = pd.read_parquet(source / "openhands.parquet")
    rows = rows[rows["benchmark"] != "swe-bench-multimodal-unsolveable"]
    resolved = rows["resolved"].astype("boolean").astype("float32")
    return rows.assign(resolved=resolved).drop(columns="harness_version")


def select_llmrouter(source: Path) -> pd.DataFrame:
    """Selects nine models on queries of 14 tasks, without private items and test copies of training prompts."""
    rows = pd.read_parquet(source / "llmrouter.parquet")
    is_training_copy = (rows["split"] == "test") & rows["in_other_split"]
    rows = rows[~rows["mmlu_holdout_stem"] & ~is_training_copy]
    return rows[["item", "task", "prompt_chars", "model", "score"]]


def select_zeroeval(source: Path, table: str) -> pd.DataFrame:
    """Selects models on questions, with the length of replies, without models that left questions out."""
    rows = pd.read_parquet(source / f"zeroeval_{table}.parquet")
    num_answered = rows.groupby("model", observed=True)["item"].transform("size")
    return rows[num_answered == rows["item"].nunique()]


def select_routellm(source: Path) -> pd.DataFrame:
    """Selects two models on questions of 45 subjects and of GSM8K, without contaminated and repeated prompts.

    Replies are graded again where that is possible, because the source's grader reads "$20.00" as 0.

    Args:
        source: Folder of the source's tables.

    Returns:
        A row per model and question.
    """
    rows = pd.read_parquet(source / "routellm.parquet")
    regraded = rows["correct_regraded"].astype("boolean")
    is_right = regraded.fillna(rows["correct"]).astype(bool)
    rows = rows.assign(right=is_right)
    prompts = pd.read_json(source / _PROMPT_FILES["routellm"], lines=True)
    prompts = prompts.drop_duplicates("prompt")
    is_first_of_prompt = rows["item"].isin(prompts["item"])
    rows = rows[~rows["contaminated"] & is_first_of_prompt]
    return rows[["table", "group", "item", "prompt_chars", "model", "right"]]


def select_routerarena(source: Path) -> pd.DataFrame:
    """Selects two models on questions of 78 data sets, with recorded costs and the published scores.

    Args:
        source: Folder of the source's tables.

    Returns:
        A row per model and question.
    """
    rows = pd.read_parquet(source / "routerarena.parquet")
    # All calls succeeded, so that the column says nothing.
    rows = rows.drop(columns="success").rename(columns={"dollars": "cost_usd"})
    dtypes = {
        "score": "float32",
        "cost_usd": "float32",
        "tokens_in": "int32",
        "tokens_out": "int32",
    }
    return rows.astype(dtypes)


def select_facts(source: Path) -> dict[str, pd.DataFrame]:
    """Selects the rows of every table that is shipped.

    Args:
        source: Folder of the sources' tables.

    Returns:
        Tables by name; rows are sorted, and columns of texts are categories.
    """
    tables = {
        "openhands": select_openhands(source),
        "llmrouter": select_llmrouter(source),
        "routellm": select_routellm(source),
        "gsm": select_zeroeval(source, "gsm"),
        "crux": select_zeroeval(source, "crux"),
        "routerarena": select_routerarena(source),
    }
    return {name: _sort_rows(rows) for name, rows in tables.items()}


def _sort_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Sorts rows and makes columns of texts categories, so that equal tables give equal files.

    Args:
        rows: The table.

    Returns:
        The sorted table.
    """
    rows = rows.copy()
    for name, dtype in rows.dtypes.items():
        if not pd.api.types.is_numeric_dtype(dtype):
            rows[name] = rows[name].astype(str).astype("category")
    candidates = ("table", "benchmark", "item", "harness", "model")
    sort_columns = [name for name in candidates if name in rows]
    return rows.sort_values(sort_columns, kind="stable").reset_index(drop=True)


class SentenceEncoder:
    """A sentence encoder: the embedding of a prompt is the mean over its tokens of the last layer's states."""

    def __init__(self, folder: str | Path, dtype: str = "float32") -> None:
        """
        Args:
            folder: Folder of its configuration, tokenizer and weights.
            dtype: Precision in which it computes, by PyTorch's name; embeddings are float32.
        """
        from transformers import AutoModel, AutoTokenizer  # imported here: facts need neither

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, dtype=dtype).eval()

    def embed(self, prompts: Sequence[str]) -> np.ndarray:
        """Computes embeddings.

        Args:
            prompts: Texts; what exceeds `MAX_TOKENS` is cut off.

        Returns:
            (prompts, d), of unit length.
        """
        import torch

        embeddings = np.zeros((len(prompts), self.model.config.hidden_size), dtype=np.float32)

        # Prompts of similar length share a batch, which then needs little padding.
        order = np.argsort([len(prompt) for prompt in prompts], kind="stable")
        num_batches = -(-len(order) // _BATCH_SIZE)
        for rows in np.array_split(order, num_batches):
            batch = self.tokenizer(
                [prompts[row] for row in rows],
                padding=True,
                truncation=True,
                max_length=MAX_TOKENS,
                return_tensors="pt",
            )
            with torch.inference_mode():
                states = self.model(**batch).last_hidden_state.float()  # (batch, tokens, d)
            mask = batch["attention_mask"][:, :, None]  # (batch, tokens, 1), 0 at padding
            mean_states = (states * mask).sum(1) / mask.sum(1)  # (batch, d)
            unit_vectors = torch.nn.functional.normalize(mean_states, dim=1)
            embeddings[rows] = unit_vectors.numpy()
        return embeddings


@cache
def load_sentence_encoder(folder: str, dtype: str = "float32") -> SentenceEncoder:
    """Loads the encoder of a folder; later calls return the same object."""
    return SentenceEncoder(folder, dtype)


def embed_prompts(prompts: Sequence[str], folder: Path) -> np.ndarray:
    """Computes sentence embeddings, (prompts, d) of unit length, with the encoder of a folder."""
    return load_sentence_encoder(str(folder)).embed(prompts)


def reduce_dimensions(vectors: np.ndarray, dims: int = NUM_AXES) -> tuple[np.ndarray, float]:
    """Projects vectors on their first principal axes, and rounds the result to small integers.

    Args:
        vectors: (n, d).
        dims: Number of axes.

    Returns:
        (n, dims), integers from -MAX_INTEGER to MAX_INTEGER, and the fraction of the variance that they explain. The
        sign of an axis is such that its largest entry is positive.
    """
    centred = vectors.astype(float) - vectors.mean(0)
    _, singular_values, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:dims]

    # The sign of an axis is arbitrary, so it is fixed.
    row = np.arange(len(axes))
    largest_entry = np.abs(axes).argmax(1)
    signs = np.sign(axes[row, largest_entry])
    axes = axes * signs[:, None]
    projected = centred @ axes.T  # (n, dims)
    variances = singular_values**2
    explained = float(variances[:dims].sum() / variances.sum())

    scale = MAX_INTEGER / np.abs(projected).max()
    integers = np.round(projected * scale).astype(np.int8)
    return integers, explained


def make_embeddings(source: Path, table: str, folder: Path, items: pd.Series) -> pd.DataFrame:
    """Makes the table of embeddings of one source's prompts.

    Args:
        source: Folder of the prompts.
        table: Name of the source.
        folder: Folder of the encoder.
        items: Items of the table, some of them more than once.

    Returns:
        Columns item, e00, e01, ...; one row for each different item, sorted.
    """
    prompts = {}
    with open(source / _PROMPT_FILES[table], encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            prompts[row["item"]] = row["prompt"]
    names = sorted(set(items.astype(str)))
    texts = [prompts[name] for name in names]
    vectors = embed_prompts(texts, folder)
    reduced, explained = reduce_dimensions(vectors)
    num_columns = reduced.shape[1]
    print(
        f"{table}: {len(names)} prompts, {explained:.0%} of the variance in {num_columns} numbers"
    )
    columns = {f"e{index:02d}": reduced[:, index] for index in range(num_columns)}
    return pd.DataFrame({"item": names} | columns)


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
    parser.add_argument("--out", type=Path, default=OUTPUT_FOLDER)
    options = parser.parse_args(arguments)
    tables = select_facts(options.source)
    for name, rows in tables.items():
        artifacts.write_parquet(options.out / f"{name}.parquet", rows)
    if options.model:
        for name in _PROMPT_FILES:
            embeddings = make_embeddings(options.source, name, options.model, tables[name]["item"])
            artifacts.write_parquet(options.out / f"{name}_embeddings.parquet", embeddings)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

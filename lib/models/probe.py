"""What a hidden state knows: linear probes on the state from which a model begins its reply.

A probe is ridge regression onto one-hot classes, fitted on items of the dev split and judged on items of
the test split, layer by layer. A probe finds what is there, not what is used; so beside a trained model
stands the same network untrained, and the best constant guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from transformers import LlamaForCausalLM

from lib import stats, tasks
from lib.models.corpus import question
from lib.models.dialogue import conversation
from lib.models.forward import Forward

RIDGE = 1.0  # penalty on standardised states (decision; not tuned)


@torch.inference_mode()
def states(model: LlamaForCausalLM, items: Sequence[tasks.Item], at_once: int = 256) -> np.ndarray:
    """Hidden states at the last token of each item's prompt, (layers + 1, n, hidden); layer 0 is the embedding."""
    forward = Forward(model)
    prompts = [conversation(question(item)) for item in items]
    order = np.argsort([len(p) for p in prompts], kind="stable")
    out = np.zeros((forward.depth + 1, len(items), forward.embedding.shape[1]), np.float32)
    for begin in range(0, len(order), at_once):
        part = order[begin : begin + at_once]
        for layer, state in enumerate(forward.last([prompts[i] for i in part], layers=True)):
            out[layer, part] = state.numpy()
    return out


def fit(known: np.ndarray, labels: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Classes of `new` (m, d) by ridge regression on `known` (n, d) with `labels` (n,)."""
    classes = np.unique(labels)
    mean, scale = known.mean(0), known.std(0) + 1e-6
    x = np.c_[(known - mean) / scale, np.ones(len(known))].astype(np.float64)
    y = (labels[:, None] == classes).astype(np.float64)
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return classes[np.argmax(np.c_[(new - mean) / scale, np.ones(len(new))] @ weights, axis=1)]


def probe(model: LlamaForCausalLM, families: Sequence[str], n: int, seed: int = 0) -> pd.DataFrame:
    """Accuracy of probes by layer, for the category and, within each family, for the difficulty.

    n: items per family and split. Rows: what, layer, accuracy (Interval over test items), constant (the
    best constant guess).
    """
    drawn = {split: [i for f in families for i in tasks.draw(f, split, n, seed=seed)] for split in ("dev", "test")}
    found = {split: states(model, items) for split, items in drawn.items()}
    about = {split: _labels(items) for split, items in drawn.items()}
    rows = []
    for what in ("category", *families):
        masks = {s: np.array([what in ("category", i.category) for i in drawn[s]]) for s in drawn}
        label = "category" if what == "category" else "difficulty"
        known, wanted = (about[s][label].to_numpy()[masks[s]] for s in ("dev", "test"))
        constant = float(np.mean(wanted == pd.Series(known).mode()[0]))
        for layer in range(len(found["dev"])):
            guessed = fit(found["dev"][layer][masks["dev"]], known, found["test"][layer][masks["test"]])
            share = stats.share_interval(int((guessed == wanted).sum()), len(wanted))
            rows.append({"what": what, "layer": layer, "accuracy": share, "constant": constant})
    return pd.DataFrame(rows)


def _labels(items: Sequence[tasks.Item]) -> pd.DataFrame:
    return pd.DataFrame({"category": [i.category for i in items], "difficulty": [i.difficulty for i in items]})

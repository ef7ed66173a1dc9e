"""What a hidden state knows: linear probes on the state from which a model begins its reply.

A probe is ridge regression onto one-hot classes, fitted on items of the dev split and judged on items of
the test split, layer by layer. A probe finds what is there, not what is used; so beside a trained model
stands the same network untrained, and the best constant guess.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from transformers import LlamaForCausalLM

from lib import tasks
from lib.language_models.chat_template import conversation
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training.training_data import question

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


def probe(
    model: LlamaForCausalLM, name: str, families: Sequence[str], n: int, seed: int = 0
) -> pd.DataFrame:
    """What probes of a model tell of test items, layer by layer, as record rows (right): its category (group
    "category"), and its difficulty within each family (group: the family).

    n: items per family and split. Own columns: layer, 0 is the embedding; constant, whether the best constant guess of
    the dev split is right.
    """
    drawn = {
        split: [i for f in families for i in tasks.draw(f, split, n, seed=seed)]
        for split in ("dev", "test")
    }
    found = {split: states(model, items) for split, items in drawn.items()}
    about = {
        split: pd.DataFrame(items)[["category", "difficulty"]] for split, items in drawn.items()
    }
    parts = []
    for what in ("category", *families):
        chosen = {
            split: (table["category"] == what) | (what == "category")
            for split, table in about.items()
        }
        label = "category" if what == "category" else "difficulty"
        known, wanted = (about[split].loc[chosen[split], label] for split in ("dev", "test"))
        part = pd.DataFrame({"item": wanted.index.astype(str), "group": what})
        part["constant"] = (wanted == known.mode()[0]).to_numpy(dtype=float)
        for layer, (dev, test) in enumerate(zip(found["dev"], found["test"], strict=True)):
            guessed = fit(dev[chosen["dev"]], known.to_numpy(), test[chosen["test"]])
            parts.append(
                part.assign(layer=layer, correct=(guessed == wanted).to_numpy(dtype=float))
            )
    common = {
        "method": name,
        "role": "expert",
        "backend": "lab",
        "seed": seed,
        "split": "test",
        "sample": 0,
    }
    return pd.concat(parts, ignore_index=True).assign(**common)

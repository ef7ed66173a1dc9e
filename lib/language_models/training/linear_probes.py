"""What a hidden state knows: linear probes on the state from which a model begins its reply.

A probe is ridge regression onto one-hot classes, fitted on items of the dev split and judged on items of the test
split, layer by layer. A probe finds what is there, not what is used; so beside a trained model stand the same network
untrained, and the best constant guess.

Left out: non-linear probes, and a penalty that is tuned.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from transformers import LlamaForCausalLM

from lib import tasks
from lib.language_models.chat_template import encode_conversation
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training.training_data import write_question

RIDGE = 1.0  # penalty on standardised states (decision; not tuned)
CATEGORY = "category"  # the group of the probe for an item's family


@torch.inference_mode()
def compute_prompt_states(
    model: LlamaForCausalLM, items: Sequence[tasks.Item], max_batch_size: int = 256
) -> np.ndarray:
    """Compute the hidden states at the last token of each item's prompt.

    Args:
        model: A lab model.
        items: Any number.
        max_batch_size: Prompts side by side at the most.

    Returns:
        (layers + 1, n, d); layer 0 is the embedding.
    """
    forward = Forward(model)
    questions = [write_question(item) for item in items]
    prompts = [encode_conversation(question) for question in questions]

    # In order of length, so that little is padded.
    lengths = [len(prompt) for prompt in prompts]
    by_length = np.argsort(lengths, kind="stable")
    hidden_size = forward.embedding.shape[1]
    states = np.zeros((forward.num_layers + 1, len(items), hidden_size), np.float32)
    for begin in range(0, len(by_length), max_batch_size):
        indices = by_length[begin : begin + max_batch_size]
        batch = [prompts[i] for i in indices]
        for layer, state in enumerate(forward.compute_last_states(batch, all_layers=True)):
            states[layer, indices] = state.numpy()
    return states


def fit_and_classify(
    train_states: np.ndarray, train_labels: np.ndarray, test_states: np.ndarray
) -> np.ndarray:
    """Fit a probe and classify other states with it.

        W = (X' X + lambda I)^-1 X' Y,    class(x) = argmax_c (x' W)_c

    Args:
        train_states: (n, d).
        train_labels: (n,).
        test_states: (m, d).

    Returns:
        (m,), labels.
    """
    # Standardised by the training states, with a column of ones for the intercept.
    mean = train_states.mean(0)
    scale = train_states.std(0) + 1e-6  # a unit of an untrained layer may be constant
    train_ones = np.ones(len(train_states))
    test_ones = np.ones(len(test_states))
    x = np.c_[(train_states - mean) / scale, train_ones]  # (n, d + 1)
    test_x = np.c_[(test_states - mean) / scale, test_ones]  # (m, d + 1)

    classes = np.unique(train_labels)
    x = x.astype(np.float64)
    y = (train_labels[:, None] == classes).astype(np.float64)  # (n, classes), one-hot
    penalty = RIDGE * np.eye(x.shape[1])
    weights = np.linalg.solve(x.T @ x + penalty, x.T @ y)  # (d + 1, classes)
    scores = test_x @ weights  # (m, classes)
    return classes[np.argmax(scores, axis=1)]


def measure_probes(
    model: LlamaForCausalLM, name: str, families: Sequence[str], n: int, seed: int = 0
) -> pd.DataFrame:
    """Measure what probes of a model tell of test items, layer by layer.

    Args:
        model: A lab model.
        name: The `method` of the rows.
        families: Families of the items.
        n: Items per family and split.
        seed: Seed of the items.

    Returns:
        Rows of results with the column correct. The group "category" asks for an item's family, the group of a family
        for the difficulty of its items. Further columns: layer, 0 is the embedding; constant, whether the best
        constant guess of the dev split is right.
    """
    items_by_split, states_by_split = {}, {}
    for split in ("dev", "test"):
        items: list[tasks.Item] = []
        for family in families:
            items += tasks.draw_items(family, split, n, seed=seed)
        items_by_split[split] = pd.DataFrame(
            {
                "group": [item.group for item in items],
                "difficulty": [item.difficulty for item in items],
            }
        )
        states_by_split[split] = compute_prompt_states(model, items)
    dev_items, test_items = items_by_split["dev"], items_by_split["test"]

    # The family is asked of all items, the difficulty of those of one family.
    tables = []
    for group in (CATEGORY, *families):
        if group == CATEGORY:
            label = "group"
            in_dev = np.ones(len(dev_items), dtype=bool)
            in_test = np.ones(len(test_items), dtype=bool)
        else:
            label = "difficulty"
            in_dev = (dev_items["group"] == group).to_numpy()
            in_test = (test_items["group"] == group).to_numpy()
        dev_labels = dev_items.loc[in_dev, label]
        test_labels = test_items.loc[in_test, label]

        rows = pd.DataFrame({"item": test_labels.index.astype(str), "group": group})
        rows["constant"] = (test_labels == dev_labels.mode()[0]).to_numpy(dtype=float)
        layers = zip(states_by_split["dev"], states_by_split["test"], strict=True)
        for layer, (dev_states, test_states) in enumerate(layers):
            predicted = fit_and_classify(
                dev_states[in_dev], dev_labels.to_numpy(), test_states[in_test]
            )
            correct = (predicted == test_labels).to_numpy(dtype=float)
            tables.append(rows.assign(layer=layer, correct=correct))
    return pd.concat(tables, ignore_index=True).assign(
        method=name, role="expert", backend="lab", seed=seed, split="test", sample=0
    )

"""Do preferences steer? What an orchestrator would spend on the same menus for users who care for one thing only.

Nothing is sampled: the probability of calling a tool first is that of the turns which call it in the orchestrator's own
form (`lab_episodes.write_call_turn`), one for each fact that a thought may quote, computed token by token, and the
tools of a menu share what these turns have in all. Expected cost and latency are sums over these probabilities,
relative to the mean tool of the menu. Users meet the same questions and menus, so that `lab_estimates` can compare
them in pairs.

Letters of shapes: n menus, M tools on a menu.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import PAD, encode
from lib.tool_orchestration.lab_episodes import write_call_turn
from lib.tool_orchestration.lab_menus import NUM_FACTS, STEERING_USERS, LabAssignment
from lib.tool_orchestration.tool_menu import UserPreference

VERSION = 1  # of expected cost and latency under an orchestrator's probabilities
BATCH_SIZE = 64


@torch.no_grad()
def compute_turn_log_probs(
    model: torch.nn.Module, assignments: Sequence[LabAssignment]
) -> np.ndarray:
    """Compute the log-probability that an orchestrator's first turn calls each tool on each menu.

    A turn quotes one of NUM_FACTS facts of the menu before the call (`lab_episodes.write_call_turn`); the probability
    is summed over the facts.

    Args:
        model: The orchestrator, a lab model.
        assignments: n questions with users and with menus of M tools.

    Returns:
        (n, M) log-probabilities (natural logarithm).
    """
    sequences = []
    prompt_lengths = []
    for assignment in assignments:
        prompt_ids = list(encode_conversation(assignment.messages))
        for entry in assignment.entries:
            for fact_index in range(NUM_FACTS):
                turn_ids = encode(write_call_turn(assignment, entry, fact_index))
                sequences.append(prompt_ids + turn_ids)
                prompt_lengths.append(len(prompt_ids))

    log_probs = np.empty(len(sequences))
    for start in range(0, len(sequences), BATCH_SIZE):
        batch = sequences[start : start + BATCH_SIZE]
        longest = max(map(len, batch))
        ids = torch.full((len(batch), longest), encode_special(PAD))
        is_token = torch.zeros((len(batch), longest), dtype=torch.bool)
        for row, sequence in enumerate(batch):
            ids[row, : len(sequence)] = torch.tensor(sequence)
            is_token[row, : len(sequence)] = True
        logits = model(input_ids=ids, attention_mask=is_token.long()).logits

        # Position t predicts token t + 1; only tokens of the turn count.
        token_log_probs = logits[:, :-1].log_softmax(-1)
        token_log_probs = token_log_probs.gather(-1, ids[:, 1:, None])[..., 0]
        positions = torch.arange(1, longest)
        lengths = torch.tensor(prompt_lengths[start : start + len(batch)])
        is_turn = is_token[:, 1:] & (positions >= lengths[:, None])
        sums = (token_log_probs * is_turn).sum(1)
        log_probs[start : start + len(batch)] = sums.double().numpy()
    by_fact = log_probs.reshape(len(assignments), -1, NUM_FACTS)  # (n, M, facts)
    return np.logaddexp.reduce(by_fact, axis=2)


def compute_tool_probabilities(turn_log_probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide the probability of the calling turns among the tools of each menu.

    Args:
        turn_log_probs: (n, M) from `compute_turn_log_probs`.

    Returns:
        (n, M) probabilities of the M tools on n menus, scaled to the sum 1; and (n,) their sum before scaling: the
        probability that the first turn calls any tool of the menu in the form that was taught.
    """
    turn_probabilities = np.exp(turn_log_probs)
    covered = turn_probabilities.sum(1)
    return turn_probabilities / covered[:, None], covered


def compute_expected_spending(
    model: torch.nn.Module,
    assignments: Sequence[LabAssignment],
    users: Mapping[str, UserPreference] = STEERING_USERS,
) -> pd.DataFrame:
    """Compute what an orchestrator would spend on the same menus for each user.

    Args:
        model: A lab model.
        assignments: n questions with menus; their own users are replaced.
        users: Users by name, each with weights of accuracy, cost and latency.

    Returns:
        A row for each menu and user: item (number of the menu), user, cost and latency (expected, over those of the
        menu's mean tool), accuracy (expected, by the cards of the tools), covered (see `compute_tool_probabilities`).
    """
    tables = []
    for name, user in users.items():
        for_user = [replace(assignment, user=user) for assignment in assignments]
        probabilities, covered = compute_tool_probabilities(compute_turn_log_probs(model, for_user))
        tables.append(
            pd.DataFrame(
                {
                    "item": np.arange(len(assignments)),
                    "user": name,
                    **average_spending(assignments, probabilities),
                    "covered": covered,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def average_spending(
    assignments: Sequence[LabAssignment], probabilities: np.ndarray
) -> dict[str, np.ndarray]:
    """Average price, latency and accuracy over the tools of each menu.

    Args:
        assignments: n questions with menus.
        probabilities: (n, M) of calling each tool.

    Returns:
        By name, (n,) each: "cost" and "latency", expected and relative to the menu's mean tool; "accuracy", expected by
        the tools' measured cards.
    """
    prices = []
    latencies = []
    accuracies = []
    for assignment in assignments:
        prices.append([entry.usd_per_token for entry in assignment.entries])
        latencies.append([entry.seconds_per_token for entry in assignment.entries])
        accuracies.append(
            [entry.tool.get_accuracy(assignment.item) for entry in assignment.entries]
        )
    relative_prices = np.array(prices) / np.mean(prices, axis=1, keepdims=True)
    relative_latencies = np.array(latencies) / np.mean(latencies, axis=1, keepdims=True)
    return {
        "cost": (probabilities * relative_prices).sum(1),
        "latency": (probabilities * relative_latencies).sum(1),
        "accuracy": (probabilities * np.array(accuracies)).sum(1),
    }

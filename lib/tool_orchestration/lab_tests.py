"""What is measured of an orchestrator in the lab world: episodes, steering, held-out tools, unseen prices.

Episodes are rolled out once for each test menu. The other three need no sampling: they are sums over the probabilities
of calling each tool of a menu (`steering.compute_turn_log_probs`).

    episodes    what it does and spends on test menus, with its own tokens and without
    steering    expected cost and latency for users who care for one thing only, on the same menus
    held out    the probability of tools that training never had, where they are the best choice and where not
    prices      the probability of tools that a list which training never had made the cheapest

Letters of shapes: n menus, M tools on a menu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from lib.rl.generators import Generator
from lib.tool_orchestration import lab_episodes, lab_world, steering
from lib.tool_orchestration.lab_menus import (
    COST_ONLY,
    MENU_SIZE,
    LabAssignment,
    compute_menu_utilities,
    turn_prices_round,
)
from lib.tool_orchestration.lab_world import LabWorld

VERSION = 1  # of what is measured of an orchestrator in the lab world
NUM_CHEAPENED = 2  # tools of a menu that count as made cheap by the unseen list


def measure_episodes(
    generator: Generator,
    world: LabWorld,
    assignments: Sequence[LabAssignment],
    seed: int,
    temperature: float,
) -> pd.DataFrame:
    """Roll out one episode for each menu.

    Args:
        generator: Samples the orchestrator's turns.
        world: Its tools and the environment that calls them.
        assignments: n questions with menus and users.
        seed: Seed of the orchestrator's samples.
        temperature: Sampling temperature of the orchestrator.

    Returns:
        A row for each menu: item, group (the kind of the question), correct, cost_usd (of calls and own tokens),
        own_cost_usd, seconds, calls, malformed, and chosen (the lab models that were called).
    """
    episodes = lab_episodes.roll_out_assignments(
        generator, world.environment, assignments, seed, temperature
    )
    rows = []
    for index, episode in enumerate(episodes):
        # Names on a menu are aliases; the entry knows which model stands behind one.
        entries = [episode.assignment.find_entry(name) for name in episode.called_experts]
        rows.append(
            {
                "item": index,
                "group": episode.assignment.item.group,
                "correct": episode.correct,
                "cost_usd": episode.total_cost_usd,
                "own_cost_usd": episode.total_cost_usd - episode.cost_usd,
                "seconds": episode.total_seconds,
                "calls": len(entries),
                "malformed": episode.num_malformed,
                "chosen": [entry.tool.name for entry in entries],
            }
        )
    return pd.DataFrame(rows)


def compute_probabilities(
    model: torch.nn.Module, assignments: Sequence[LabAssignment]
) -> np.ndarray:
    """Compute the probability that an orchestrator calls each tool of a menu first, for the assignment's user.

    Args:
        model: The orchestrator's language model.
        assignments: n questions with users and with menus of M tools.

    Returns:
        (n, M) probabilities, which add up to 1 on each menu.
    """
    log_probs = steering.compute_turn_log_probs(model, assignments)
    probabilities, _ = steering.compute_tool_probabilities(log_probs)
    return probabilities


def measure_held_out_tools(model: torch.nn.Module, world: LabWorld, num_menus: int) -> pd.DataFrame:
    """Measure whether tools that training never had are called where they are the best choice.

    The best choice has the highest expected utility by cards and levels (`lab_menus.compute_menu_utilities`).

    Args:
        model: The orchestrator's language model.
        world: Its tools.
        num_menus: Menus that are drawn, of which those without a held-out tool are left out.

    Returns:
        A row for each menu: item (number of the menu), is_best (whether a held-out tool is the best choice),
        probability (of calling a held-out tool), and chance (the same for a uniform random choice).
    """
    assignments = world.draw_menus(lab_world.HELD_OUT_MENUS, num_menus)
    probabilities = compute_probabilities(model, assignments)
    rows = []
    for index, assignment in enumerate(assignments):
        is_held_out = np.array([entry.tool.name in world.held_out for entry in assignment.entries])
        accuracy = [entry.tool.get_accuracy(assignment.item) for entry in assignment.entries]
        # By the measured accuracy of each tool on questions of this kind.
        utilities = compute_menu_utilities(assignment, accuracy, assignment.user)
        rows.append(
            {
                "item": index,
                "is_best": bool(is_held_out[utilities.argmax()]),
                "probability": float(probabilities[index, is_held_out].sum()),
                "chance": float(is_held_out.mean()),
            }
        )
    return pd.DataFrame(rows)


def _list_price_levels(assignment: LabAssignment) -> list[int]:
    """List the price level of each tool on a menu."""
    return [entry.price_level for entry in assignment.entries]


def measure_unseen_prices(
    model: torch.nn.Module, assignments: Sequence[LabAssignment]
) -> pd.DataFrame:
    """Measure whether an orchestrator calls, for users who care for cost only, what an unseen price list makes cheap.

    Args:
        model: The orchestrator's language model.
        assignments: n menus at usual prices; their users are replaced.

    Returns:
        A row for each menu: item, usual and unseen (the probability, on either list, of calling one of the
        NUM_CHEAPENED tools that the unseen list makes the cheapest), and shift, their difference.
    """
    usual = [replace(assignment, user=COST_ONLY) for assignment in assignments]
    unseen = [turn_prices_round(assignment) for assignment in usual]
    # What is most expensive on the usual list is cheapest on the other.
    levels = np.array([_list_price_levels(assignment) for assignment in usual])  # (n, M)
    is_cheapened = levels >= MENU_SIZE - NUM_CHEAPENED
    usual_share = (compute_probabilities(model, usual) * is_cheapened).sum(1)
    unseen_share = (compute_probabilities(model, unseen) * is_cheapened).sum(1)
    return pd.DataFrame(
        {
            "item": np.arange(len(usual)),
            "usual": usual_share,
            "unseen": unseen_share,
            "shift": unseen_share - usual_share,
        }
    )

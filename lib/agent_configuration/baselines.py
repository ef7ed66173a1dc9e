"""Constants, the oracle, and what choosing could gain, from configurations that were all tried on the same questions.

Which configuration is a constant is decided on training questions by mean reward, among everything that was tried
there: grid, sampled ones and the ends of the greedy searches. The oracle knows afterwards how everything that anybody
tried or chose did on each test question with the same random numbers: nobody can be above it, and a part of its lead is
luck. What could be gained without luck is the headroom: chosen on one sample of a dev question, scored on another.
"""

import numpy as np
import pandas as pd

from lib.agent_configuration.search import BASE

# Sets of configurations.
GRID, SAMPLED, GREEDY = "grid", "sampled", "greedy"
QUESTION = ["key", "prompt"]
BEST_PER_QUESTION = "best per question"
BEST_PER_KIND = "best constant per kind"
BEST_CONSTANT = "best constant"
MOST_ACCURATE = "most accurate constant"  # whatever it costs


def find_best_number(outcomes: pd.DataFrame, column: str = "reward", split: str = "train") -> int:
    """Find the configuration with the highest mean.

    Args:
        outcomes: Rows with split and number (of the configuration).
        column: Name of the column whose mean is compared.
        split: The questions that are averaged over.

    Returns:
        Its number.
    """
    rows = outcomes[(outcomes["split"] == split) & outcomes[column].notna()]
    return int(rows.groupby("number")[column].mean().idxmax())


def select_constant(
    outcomes: pd.DataFrame, set_name: str = "", split: str = "test"
) -> pd.DataFrame:
    """Select the best configuration for all questions, by mean reward on training questions.

    Args:
        outcomes: Rows with split, set, number and reward.
        set_name: Only configurations of this set; "" for all.
        split: The questions whose rows are returned.

    Returns:
        Its rows.
    """
    candidates = outcomes[outcomes["set"] == set_name] if set_name else outcomes
    best = find_best_number(candidates)
    return candidates[(candidates["split"] == split) & (candidates["number"] == best)]


def select_constant_per_kind(
    outcomes: pd.DataFrame, set_name: str = "", split: str = "test"
) -> pd.DataFrame:
    """Select the best configuration for each kind of question, which a policy that is trained for one kind has to beat.

    Args:
        outcomes: Rows with group (the kind), split, set, number and reward.
        set_name: Only configurations of this set; "" for all.
        split: The questions whose rows are returned.

    Returns:
        The rows of each kind under its best configuration.
    """
    tables = [
        select_constant(of_kind, set_name, split)
        for _, of_kind in outcomes.groupby("group", sort=False)
    ]
    return pd.concat(tables, ignore_index=True)


def select_constants(outcomes: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Select the test rows of the configurations that the searches come to, by method.

    Args:
        outcomes: The table of `AgentConfigurationResults`.

    Returns:
        base, grid, greedy and by_kind have a configuration for each kind of question (base the same for all),
        best_constant has one.
    """
    declared = outcomes[outcomes["set"].isin([GRID, SAMPLED, GREEDY])]
    is_base = (outcomes["digest"] == BASE.digest) & (outcomes["set"] == SAMPLED)
    return {
        "base": outcomes[is_base & (outcomes["split"] == "test")],
        "grid": select_constant_per_kind(declared, GRID),
        "greedy": select_constant_per_kind(declared, GREEDY),
        "best_constant": select_constant(declared),
        "by_kind": select_constant_per_kind(declared),
    }


def select_oracle(*tables: pd.DataFrame) -> pd.DataFrame:
    """Select for each question the row with the highest reward, of equal ones the cheapest.

    Args:
        *tables: Rows on the same sample of the questions. Nothing in them is above the oracle, by construction.

    Returns:
        One row for each question.
    """
    rows = pd.concat(tables, ignore_index=True)
    ordered = rows.sort_values(["reward", "cost_usd"], ascending=[False, True], kind="stable")
    return ordered.drop_duplicates(QUESTION).sort_index()


def oracle_dominates(oracle: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Check that no row has a higher reward than the oracle on its question.

    Args:
        oracle: One row for each item.
        rows: Rows of any methods, with item and reward.
    """
    limits = rows["item"].map(oracle.set_index("item")["reward"])
    return bool((rows["reward"] <= limits).all())


def make_gate_rows(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Make rows for what choosing a configuration for each question gains on dev questions, from which nothing learns.

    The choice is made on one sample and scored on the other, both ways round, so that luck gains nothing. Of the
    configurations that were right on the first sample it takes the one with the best mean reward on the kind's training
    questions, which is the kind's constant wherever that was right. Among a hundred configurations a few are right by
    luck, so the highest reward on a single sample would be a bad guide.

    Args:
        outcomes: Rows with the splits train, dev and dev_again.

    Returns:
        Rows with method (BEST_PER_QUESTION, BEST_PER_KIND, BEST_CONSTANT, MOST_ACCURATE), sample, and the columns of
        `outcomes`.
    """
    first_sample = outcomes[outcomes["split"] == "dev"]
    second_sample = outcomes[outcomes["split"] == "dev_again"]
    best = find_best_number(outcomes)
    most_accurate = find_best_number(outcomes, "correct")
    train = outcomes[outcomes["split"] == "train"]
    # Mean reward on training questions, (kinds, configurations)
    mean_rewards = train.pivot_table(index="group", columns="number", values="reward")
    best_by_kind = mean_rewards.idxmax(axis=1)

    tables = []
    pairs_of_samples = [(first_sample, second_sample), (second_sample, first_sample)]
    for sample, (choosing, scoring) in enumerate(pairs_of_samples):
        kinds = scoring.groupby(QUESTION, sort=False)["group"].first()
        # For each question the number of a configuration
        choices_by_method = {
            BEST_CONSTANT: pd.Series(best, index=kinds.index),
            MOST_ACCURATE: pd.Series(most_accurate, index=kinds.index),
            BEST_PER_KIND: kinds.map(best_by_kind),
            BEST_PER_QUESTION: _choose_per_question(choosing, mean_rewards),
        }
        for method, numbers in choices_by_method.items():
            rows = _select_choices(scoring, numbers.reindex(kinds.index))
            tables.append(rows.assign(method=method, sample=sample))
    return pd.concat(tables, ignore_index=True)


def _select_choices(rows: pd.DataFrame, numbers: pd.Series) -> pd.DataFrame:
    """Select for each question the row of the configuration that is chosen for it.

    Args:
        rows: One sample of every configuration on every question.
        numbers: The number of a configuration for each question, indexed by question.

    Returns:
        One row for each question.
    """
    by_choice = rows.set_index([*QUESTION, "number"])
    question_columns = numbers.index.to_frame().to_numpy().T
    index = pd.MultiIndex.from_arrays(
        [*question_columns, numbers.to_numpy()], names=by_choice.index.names
    )
    return by_choice.loc[index].reset_index()


def _choose_per_question(rows: pd.DataFrame, mean_rewards: pd.DataFrame) -> pd.Series:
    """Choose a configuration for each question.

    Args:
        rows: One sample of every configuration on every question.
        mean_rewards: (kinds, configurations) on training questions.

    Returns:
        The number of a configuration for each question: of those that were right the one with the best mean reward on
        the kind's training questions, or the best of all where none was right.
    """
    correct = rows.pivot_table(
        index=[*QUESTION, "group"], columns="number", values="correct", aggfunc="first", sort=False
    )
    correct = correct.reindex(columns=mean_rewards.columns)  # (questions, configurations)
    kind_of_question = correct.index.get_level_values("group")
    means = mean_rewards.loc[kind_of_question].to_numpy()
    # Ranks lie below 1, so that they decide only between configurations that are equally right.
    ranks = means.argsort(axis=1).argsort(axis=1) / means.shape[1]
    chosen = np.argmax(correct.to_numpy() + ranks, axis=1)
    numbers = mean_rewards.columns.to_numpy()[chosen]
    return pd.Series(numbers, index=correct.index.droplevel("group"))

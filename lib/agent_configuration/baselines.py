"""Constants, the oracle, and what choosing could gain, from configurations that were all tried on the same questions.

Which configuration is a constant is decided on training questions by mean reward, among everything that was tried
there: grid, sampled ones and the ends of the greedy searches. The oracle knows afterwards how everything that anybody
tried or chose did on each test question with the same random numbers: nobody can be above it, and a part of its lead is
luck. What could be gained without luck is the headroom: chosen on one sample of a dev question, scored on another.
"""

import numpy as np
import pandas as pd

QUESTION = ["key", "prompt"]
BEST_PER_QUESTION = "best per question"
BEST_PER_KIND = "best constant per kind"
BEST_CONSTANT = "best constant"
MOST_ACCURATE = "most accurate constant"  # whatever it costs


def find_best_number(tried: pd.DataFrame, column: str = "reward", split: str = "train") -> int:
    """The number of the configuration with the best mean of a column on a split's questions, among these rows."""
    rows = tried[(tried["split"] == split) & tried[column].notna()]
    return int(rows.groupby("number")[column].mean().idxmax())


def select_constant(tried: pd.DataFrame, set_name: str = "", split: str = "test") -> pd.DataFrame:
    """Rows of the best configuration for all questions.

    Args:
        tried: Rows with split, set, number and reward.
        set_name: Only configurations of this set; "" for all.
        split: Whose rows.
    """
    candidates = tried[tried["set"] == set_name] if set_name else tried
    best = find_best_number(candidates)
    return candidates[(candidates["split"] == split) & (candidates["number"] == best)]


def select_constant_per_kind(
    tried: pd.DataFrame, set_name: str = "", split: str = "test"
) -> pd.DataFrame:
    """Rows of the best configuration for each kind of question; arguments as of `select_constant`.

    A policy that is trained for one kind has to beat it.
    """
    tables = [
        select_constant(of_kind, set_name, split)
        for _, of_kind in tried.groupby("group", sort=False)
    ]
    return pd.concat(tables, ignore_index=True)


def select_oracle(*tables: pd.DataFrame) -> pd.DataFrame:
    """Of each question the row with the highest reward, among all rows on it; of equals the cheaper one.

    Args:
        *tables: Rows on the same sample of the questions. Nothing in them is above the oracle, by construction.
    """
    rows = pd.concat(tables, ignore_index=True)
    ordered = rows.sort_values(["reward", "cost_usd"], ascending=[False, True], kind="stable")
    return ordered.drop_duplicates(QUESTION).sort_index()


def oracle_dominates(oracle: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Whether no row has a higher reward than the oracle on its question.

    Args:
        oracle: One row for each item.
        rows: Of any methods, with item and reward.
    """
    limits = rows["item"].map(oracle.set_index("item")["reward"])
    return bool((rows["reward"] <= limits).all())


def make_gate_rows(tried: pd.DataFrame) -> pd.DataFrame:
    """What choosing a configuration for each question gains on dev questions, from which nothing learns.

    The choice is made on one sample and scored on the other, both ways round, so that luck gains nothing. Of the
    configurations that were right on the first sample it takes the one with the best mean reward on the kind's training
    questions, which is the kind's constant wherever that was right. Among a hundred configurations a few are right by
    luck, so the highest reward on a single sample would be a bad guide.

    Args:
        tried: Rows with the splits train, dev and dev_again.

    Returns:
        Rows with method (BEST_PER_QUESTION, BEST_PER_KIND, BEST_CONSTANT, MOST_ACCURATE), sample, and the columns of
        `tried`.
    """
    samples = [tried[tried["split"] == split] for split in ("dev", "dev_again")]
    best = find_best_number(tried)
    most_accurate = find_best_number(tried, "correct")
    train = tried[tried["split"] == "train"]
    # Mean reward on training questions, (kinds, configurations)
    priors = train.pivot_table(index="group", columns="number", values="reward")
    best_by_kind = priors.idxmax(axis=1)
    tables = []
    for sample, (choosing, scoring) in enumerate([samples, samples[::-1]]):
        kinds = scoring.groupby(QUESTION, sort=False)["group"].first()
        fallbacks = kinds.map(best_by_kind)
        chosen = {
            BEST_CONSTANT: pd.Series(best, index=kinds.index),
            MOST_ACCURATE: pd.Series(most_accurate, index=kinds.index),
            BEST_PER_KIND: fallbacks,
            BEST_PER_QUESTION: _choose_per_question(choosing, priors),
        }
        by_choice = scoring.set_index([*QUESTION, "number"])
        for method, numbers in chosen.items():
            numbers = numbers.reindex(kinds.index)
            index = pd.MultiIndex.from_arrays(
                [*kinds.index.to_frame().to_numpy().T, numbers.to_numpy()],
                names=by_choice.index.names,
            )
            rows = by_choice.loc[index].reset_index()
            tables.append(rows.assign(method=method, sample=sample))
    return pd.concat(tables, ignore_index=True)


def _choose_per_question(rows: pd.DataFrame, priors: pd.DataFrame) -> pd.Series:
    """The number of a configuration for each question.

    Args:
        rows: One sample of every configuration on every question.
        priors: (kinds, configurations) mean reward on training questions.

    Returns:
        Of the configurations that were right, the one with the best prior; the best prior of all where none was.
    """
    correct = rows.pivot_table(
        index=[*QUESTION, "group"], columns="number", values="correct", aggfunc="first", sort=False
    ).reindex(columns=priors.columns)
    prior_of_question = priors.loc[correct.index.get_level_values("group")].to_numpy()
    # Ranks lie below 1, so that they decide only between configurations that are equally right.
    ranks = prior_of_question.argsort(axis=1).argsort(axis=1) / prior_of_question.shape[1]
    chosen = np.argmax(correct.to_numpy() + ranks, axis=1)
    questions = correct.index.droplevel("group")
    return pd.Series(priors.columns.to_numpy()[chosen], index=questions)

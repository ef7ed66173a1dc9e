"""What a language model as judge says of the test replies of two variants, by majority of three votes (appendix D)."""

from functools import partial

import numpy as np
import pandas as pd

from lib.conductor.experiment import CASSETTES, RUNS
from lib.conductor.judge_costs import announce_votes
from lib.conductor.llm_judge import vote_by_majority
from lib.conductor.training_job import RECORDING
from lib.config import Params
from lib.experiment import sweep
from lib.language_models.local_models import open_local
from lib.llm.open_models import export_recording, open_models

_SUFFIX = "_baseline"


def compare_by_judge(
    params: Params, components: pd.DataFrame, variant: str, baseline: str
) -> pd.DataFrame:
    """Let the judge vote on the first test replies of two variants.

    Args:
        params: `conductor.judge` names the judge.
        components: Of `ConductorResults`.
        variant: Name of the method.
        baseline: Name of what it is compared with.

    Returns:
        One row per reply: method, seed, group, item; points, 1 for a good reply; votes, 1 where the reply won against
        the other one to the same item, 1/2 each where both or neither did. Items without a verdict are left out.
    """
    test = components[components["split"] == "test"]
    keys = ["seed", "group", "item", "prompt", "reference"]
    treated = test[test["method"] == variant]
    base = test[test["method"] == baseline]
    pairs = treated.merge(base, on=keys, suffixes=("", _SUFFIX))

    judge = params.conductor.judge
    open_judge = partial(
        open_models, params.llm, [judge], RECORDING, RUNS, CASSETTES, open_local=open_local()
    )
    questions, references = pairs["prompt"].tolist(), pairs["reference"].tolist()
    answers, baseline_answers = pairs["reply"].tolist(), pairs[f"reply{_SUFFIX}"].tolist()
    costs = announce_votes(
        params.llm, judge, open_judge, questions, references, answers, baseline_answers
    )
    sweep.print_to_terminal(costs)
    vote = partial(vote_by_majority, open_judge, judge, questions, references)
    try:
        is_good = vote(answers)
        is_baseline_good = vote(baseline_answers)
        is_better = vote(answers, baseline_answers)
    finally:
        export_recording(params.llm, RECORDING, CASSETTES)

    # A lost verdict says nothing of the reply: the item leaves the comparison, for both variants.
    has_verdict = np.array(
        [None not in verdicts for verdicts in zip(is_good, is_baseline_good, strict=True)]
    )
    if not has_verdict.all():
        sweep.print_to_terminal(
            f"{judge}: {(~has_verdict).sum()} of {len(pairs)} items have no verdict"
        )
    votes = np.array([0.5 if vote is None else float(vote) for vote in is_better])
    identity = pairs[["seed", "group", "item"]]
    tables = []
    for method, verdicts, method_votes in (
        (variant, is_good, votes),
        (baseline, is_baseline_good, 1 - votes),
    ):
        points = [float(verdict is True) for verdict in verdicts]
        table = identity.assign(method=method, points=points, votes=method_votes)
        tables.append(table[has_verdict])
    return pd.concat(tables, ignore_index=True)

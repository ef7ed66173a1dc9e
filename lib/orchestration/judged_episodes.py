"""Scores of a judge for episodes of lesson 02: opens the model, announces what it may cost, and records its replies."""

from pathlib import Path

import pandas as pd

from lib.config import Params
from lib.experiment import sweep
from lib.language_models.local_models import open_local
from lib.llm.cost_estimate import announce_costs, asks_endpoint, plan_requests
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import export_recording, open_models
from lib.orchestration import llm_judge
from lib.orchestration.decision_models import CASSETTES, RECORDING, RUNS


def score_episodes(
    params: Params,
    steps: pd.DataFrame,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> pd.DataFrame:
    """Let the chat model `orchestration.judge` score episodes of students from 1 to 5, and return a row per episode.

    The criteria are adaptivity, progression, exploration and diversity of the teaching, and what it was like for the
    student: mental and temporal demand, performance, effort and frustration.

    Args:
        params: All settings.
        steps: A row per step of the episodes, with the columns method, seed and item (the student).
        runs: Folder of the file that counts the dollars spent on models, against `llm.max_usd`.
        cassettes: Folder of recorded replies of endpoints (models asked over the network), read instead of asking.

    Returns:
        A column of scores for each criterion, and the calls, tokens and dollars of judging (as `llm_judge.judge`).
    """
    name = params.orchestration.judge

    async def ask_judge() -> pd.DataFrame:
        """Open the judge, print what it may cost where it is an endpoint, and let it score all episodes.

        Returns:
            A row per episode with its scores.
        """
        opened = open_models(
            params.llm, [name], RECORDING, runs, cassettes, open_local=open_local()
        )
        async with opened as models:
            judge = models[name]
            if asks_endpoint(params.llm, [name]):
                requests = llm_judge.make_first_requests(steps, params.education)
                planned = plan_requests(judge, requests, llm_judge.ATTEMPTS)
                costs = announce_costs(params.llm, [planned])
                sweep.print_to_terminal(f"judging {len(requests):,} episodes: {costs}")
            return await llm_judge.judge(judge, steps, params.education)

    try:
        return run_coroutine(ask_judge())
    finally:
        # Replies that were paid for are kept under the name RECORDING, also where the run was interrupted.
        export_recording(params.llm, RECORDING, cassettes)


def select_first_episodes(steps: pd.DataFrame, num_episodes: int) -> pd.DataFrame:
    """The steps of the first episodes of every method and seed.

    Args:
        steps: A row per step; the column `episode` is the number of the episode under its seed.
        num_episodes: Number of episodes per method and seed.
    """
    return steps[steps["episode"] < num_episodes]

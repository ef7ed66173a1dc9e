"""Customer service on your endpoints: `python -m lib evaluate toolorchestra --tasks tau2:retail --model M --user U`.

Tasks are those of tau2-bench (`make tau2` installs it): tau2:retail, tau2:airline, tau2:telecom. A model of --model is
the agent: it reads the domain's policy, talks to a user, and calls the domain's functions, which change a database. The
user is played by the model of --user, which reads the scenario. tau2's own evaluator judges the final database. Two
settings are compared, as in ToolOrchestra's table:

  functions              the agent has the domain's functions alone
  functions and models   it may also ask each model of --experts, which reads the policy and the conversation so far

What it may cost at the most is printed first; --plan-only ends there, and --max-usd is a hard stop. Printed by team and
domain, and kept under --out: pass^k and pass@k with intervals, dollars and seconds per trial, and why conversations
ended. A trial of which a server lost a reply is counted, never scored. The same command goes on where it was stopped,
repeats the trials that failed, and pays for nothing twice. outcomes.parquet is a table that `python -m lib router
evaluate` reads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib import config
from lib.config import LLMSettings, ParamsError
from lib.experiment import artifacts
from lib.llm.cost_estimate import PlannedCalls, announce_costs
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.recorded_outcomes.user_tables import get_prompts_path
from lib.rl.user_training.experts import change_params, check_names, select_models
from lib.rl.user_training.options import add_set_option
from lib.rl.user_training.training import run_command
from lib.tasks import Item
from lib.tasks.tau2_bench import VERSION as TASKS_VERSION
from lib.tool_orchestration import service_episodes, service_results
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.make_tasks_command import split_names
from lib.tool_orchestration.service_episodes import ConversationRunner, ServiceTeam
from lib.tool_orchestration.service_options import (
    add_service_options,
    check_numbers,
    load_tasks,
    open_pool,
)
from lib.tool_orchestration.service_plan import plan_episodes
from lib.tool_orchestration.service_prompts import EXPERT_PREFIX, make_menu

FUNCTIONS = "functions"
MODELS = "models"
SETTINGS = {FUNCTIONS: "functions", MODELS: "functions and models"}
TABLE = "outcomes.parquet"
EXAMPLES = """\
examples:
  python -m lib evaluate toolorchestra --tasks tau2:retail --model small --experts large --user large --max-usd 20 \\
      --out runs/retail --plan-only
  python -m lib evaluate toolorchestra --tasks tau2:retail,tau2:airline,tau2:telecom --model small,large \\
      --experts large --user large --samples 4 --max-usd 300 --out runs/tau2
  python -m lib evaluate toolorchestra --tasks tau2:airline --split test --limit 5 --model mine --user mine \\
      --max-usd 0 --out runs/mine --set 'llm.models.mine={backend: endpoint, base_url: "http://localhost:8000/v1", \
model: my-model, price_in: 0, price_out: 0}'
then:
  python -m lib router evaluate runs/tau2/outcomes.parquet
"""


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Args:
        argv: Arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib evaluate toolorchestra",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add_service_options(parser)
    add("--model", required=True, type=split_names, metavar="A,B", help="agents, each by itself")
    add(
        "--experts",
        type=split_names,
        default=(),
        metavar="C,D",
        help="models that an agent may ask; default: none, so that there is one setting",
    )
    add(
        "--setting",
        choices=("both", FUNCTIONS, MODELS),
        default="both",
        help="functions alone, functions and models, or both; default: %(default)s",
    )
    add("--split", help="train, test or base (all that scores are published on); default: base")
    add("--limit", type=int, metavar="N", help="tasks of each domain at the most, drawn at random")
    add("--samples", type=int, default=1, metavar="K", help="trials of a task; default: 1")
    add("--parallel", type=int, default=8, metavar="N", help="conversations at once; default: 8")
    add("--temperature", type=float, help="of all models; default: each model's own")
    add("--out", required=True, type=Path, metavar="DIR")
    add("--profile", choices=config.PROFILES, default="paper")
    add("--seed", type=int, default=0, help="of --limit and of the models; default: 0")
    add_set_option(parser, "add a model by llm.models.NAME={...}, or change one; may be repeated")
    return parser.parse_args(argv)


@dataclass(frozen=True)
class ServiceInputs:
    """The inputs of an evaluation, checked before any model is called.

    Attributes:
        options: Options of the command line.
        llm: The models that may be asked alone, with prices and the spending limit.
        items: Tasks of all domains.
        teams: By the setting's name and team, in the order in which they are tried.
        notes: What a reader has to know, in sentences.
    """

    options: argparse.Namespace
    llm: LLMSettings
    items: tuple[Item, ...]
    teams: tuple[tuple[str, ServiceTeam], ...]
    notes: tuple[str, ...]

    @property
    def asked_names(self) -> list[str]:
        """Names of all models that may be called, each once."""
        return list_asked_names(self.options.user, self.teams)


def list_asked_names(user: str, teams: Sequence[tuple[str, ServiceTeam]]) -> list[str]:
    """List the models that may be called: the user, and agents and experts of all teams, each once."""
    names = [user]
    for _, team in teams:
        names += [team.agent, *team.experts]
    return list(dict.fromkeys(names))


def read_inputs(options: argparse.Namespace) -> ServiceInputs:
    """Read and check the inputs of an evaluation.

    Args:
        options: Options of the command line.

    Returns:
        The inputs.

    Raises:
        ParamsError: A number is out of its range, or no model has a name that is given.
        TaskError: The tasks cannot be read, for example since tau2-bench is not installed.
    """
    check_numbers(options, ("limit", "samples", "turns", "parallel"))
    if options.temperature is not None and not 0 <= options.temperature <= 2:
        raise ParamsError(f"--temperature {options.temperature}: give a number from 0 to 2")
    teams = list_teams(options)
    params = change_params(config.load(options.profile), "tools", options.changes)
    check_names(params.llm, [*options.model, *options.experts, options.user])
    # The tasks of all domains.
    items = []
    notes = []
    for dataset in load_tasks(options.tasks, options.split, options.limit, options.seed):
        items += dataset.items
        notes += dataset.notes[1:]  # the first says how tasks are tried, which this command does

    # The models that may be asked; "record" keeps every reply, so that none is paid for twice.
    llm = params.llm.model_copy(update={"max_usd": options.max_usd, "cassette": "record"})
    llm = select_models(llm, list_asked_names(options.user, teams))
    if options.samples > 1 and _is_greedy(llm, options):
        notes.append(
            "Agent and user are greedy, so that trials of a task may be alike; --temperature 1 makes them differ."
        )
    return ServiceInputs(options, llm, tuple(items), teams, tuple(notes))


def list_teams(options: argparse.Namespace) -> tuple[tuple[str, ServiceTeam], ...]:
    """List the teams to evaluate: each agent alone, with expert models, or both.

    Args:
        options: Options of the command line.

    Returns:
        Pairs of the setting's name and the team.

    Raises:
        ParamsError: Experts are missing.
    """
    if options.setting == MODELS and not options.experts:
        raise ParamsError("--setting models needs --experts")
    teams = []
    for agent in options.model:
        if options.setting != MODELS:
            teams.append((SETTINGS[FUNCTIONS], ServiceTeam(agent, options.user)))
        if options.setting != FUNCTIONS and options.experts:
            experts = tuple(options.experts)
            teams.append((SETTINGS[MODELS], ServiceTeam(agent, options.user, experts)))
    return tuple(teams)


def _is_greedy(llm: LLMSettings, options: argparse.Namespace) -> bool:
    """Whether no agent, and not the user, draws its replies at random."""
    if options.temperature is not None:
        return options.temperature == 0
    names = [*options.model, options.user]
    return all(llm.models[name].temperature == 0 for name in names)


def make_settings(inputs: ServiceInputs) -> dict[str, Any]:
    """The settings on which the rows of a table depend; all rows of a table have the same."""
    options = inputs.options
    return {
        "versions": [TASKS_VERSION, service_episodes.VERSION, service_results.VERSION],
        "user": options.user,
        "turns": options.turns,
        "temperature": options.temperature,
        "seed": options.seed,
    }


def read_rows(inputs: ServiceInputs) -> pd.DataFrame:
    """Read the rows that earlier runs of the command wrote.

    Args:
        inputs: Inputs of the command.

    Returns:
        A row per trial; none on the first run.

    Raises:
        ParamsError: They were made with other settings.
    """
    folder = inputs.options.out
    settings = make_settings(inputs)
    path = folder / "settings.json"
    if not (folder / TABLE).is_file():
        return pd.DataFrame(columns=list(service_results.COLUMNS))
    difference = service_results.find_settings_difference(artifacts.read_json(path), settings)
    if difference is not None:
        name, earlier, value = difference
        raise ParamsError(
            f"--out {folder} was made with {name} {earlier!r}, and this run has {value!r}; give the same, or another "
            "folder"
        )
    return artifacts.read_parquet(folder / TABLE)


def list_remaining(
    inputs: ServiceInputs, team: ServiceTeam, rows: pd.DataFrame
) -> list[tuple[Item, int]]:
    """List the trials of a team that have no outcome yet; trials that failed are repeated.

    Args:
        inputs: Inputs of the command.
        team: The team.
        rows: The rows of earlier runs.

    Returns:
        Pairs of a task and the number of its sample.
    """
    scored = rows[rows["correct"].notna() & (rows["model"] == team.label)]
    finished = set(zip(scored["item"], scored["sample"], strict=True))
    remaining = []
    for item in inputs.items:
        for sample in range(inputs.options.samples):
            if (f"{item.group}: {item.id}", sample) not in finished:
                remaining.append((item, sample))
    return remaining


def describe_costs(inputs: ServiceInputs, rows: pd.DataFrame) -> str:
    """Describe what the trials that have no outcome yet may cost at most.

    Args:
        inputs: Inputs of the evaluation: teams, tasks, prices and the spending limit.
        rows: The outcome table of earlier runs.

    Returns:
        A sentence with the largest number of calls and of dollars.
    """
    planned: list[PlannedCalls] = []
    for _, team in inputs.teams:
        items = [item for item, _ in list_remaining(inputs, team, rows)]
        planned += plan_episodes(
            inputs.llm, team, items, num_samples=1, max_turns=inputs.options.turns
        )
    # The limit has another name on the command line.
    sentence = announce_costs(inputs.llm, planned).replace("llm.max_usd", "--max-usd")
    return f"{sentence} (Every conversation with all {inputs.options.turns} turns, every reply at its limit of tokens.)"


def evaluate(options: argparse.Namespace) -> None:
    """Run the command: read the inputs, print the costs, play the conversations, and write the tables.

    Args:
        options: Options of the command line.
    """
    inputs = read_inputs(options)
    rows = read_rows(inputs)
    num_trials = len(inputs.items) * options.samples * len(inputs.teams)
    num_remaining = sum(len(list_remaining(inputs, team, rows)) for _, team in inputs.teams)
    counts = (
        f"{len(inputs.items)} tasks x {options.samples} samples x {len(inputs.teams)} teams: {num_trials} trials, "
        f"{num_remaining} of them to do."
    )
    for sentence in (*inputs.notes, counts, describe_costs(inputs, rows)):
        print(sentence, flush=True)
    if options.plan_only:
        return
    try:
        rows = run_trials(inputs, rows)
    except BudgetExceeded as error:
        # The limit is that of the command line here; what was finished is in the table.
        reason = str(error).replace("llm.max_usd", "--max-usd")
        raise LLMError(f"{reason}; run again with a higher limit to go on") from error
    write_summary(inputs, rows)


def run_trials(inputs: ServiceInputs, rows: pd.DataFrame) -> pd.DataFrame:
    """Run the trials that have no outcome yet, each a conversation of an agent and a user about a task.

    The outcome table is written after each batch, so a run that is stopped goes on from there.

    Args:
        inputs: Teams, tasks, models and options of the evaluation.
        rows: The outcome table of earlier runs with this folder; empty at first.

    Returns:
        The outcome table with a row for each trial, earlier ones among them.
    """
    options = inputs.options
    folder = options.out
    artifacts.write_json(folder / "settings.json", make_settings(inputs))
    with open_pool(inputs.llm, inputs.asked_names, folder, options.temperature) as pool:
        for setting, team in inputs.teams:
            runner = ConversationRunner(pool, inputs.llm, team, options.turns, options.temperature)
            menu = make_menu(team.experts)
            remaining = list_remaining(inputs, team, rows)
            for start in range(0, len(remaining), options.parallel):
                trials = remaining[start : start + options.parallel]
                assignments = [Assignment(item, menu) for item, _ in trials]
                samples = [sample for _, sample in trials]
                episodes = runner.run(assignments, samples, options.seed)
                rows = add_rows(folder, rows, episodes, team, setting)
                num_done = min(start + options.parallel, len(remaining))
                print(f"{team.label}: {num_done} of {len(remaining)} trials", flush=True)
    return rows


def add_rows(
    folder: Path,
    rows: pd.DataFrame,
    episodes: Sequence[service_episodes.ServiceEpisode],
    team: ServiceTeam,
    setting: str,
) -> pd.DataFrame:
    """Add the rows of new episodes to the table, in place of earlier rows of the same trial, and write it.

    Args:
        folder: Folder of the table and of its prompts.
        rows: The rows so far.
        episodes: Finished conversations.
        team: The team that played them.
        setting: Name of the setting.

    Returns:
        All rows.
    """
    expert_tools = [f"{EXPERT_PREFIX}{name}" for name in team.experts]
    new_rows = []
    prompts: dict[str, Mapping[str, Any]] = {}
    for episode in episodes:
        row = service_results.make_row(episode, team.label, setting, expert_tools)
        new_rows.append(row)
        messages = service_results.write_prompt(episode)
        prompts[row["prompt_hash"]] = {
            "prompt_hash": row["prompt_hash"],
            "item": row["item"],
            "messages": messages,
        }
    added = pd.DataFrame(new_rows, columns=list(service_results.COLUMNS))
    combined = added if rows.empty else pd.concat([rows, added], ignore_index=True)
    # A trial that was repeated replaces the one that was not scored.
    combined = combined.drop_duplicates(list(service_results.KEY), keep="last")
    combined = combined.reset_index(drop=True)
    artifacts.write_parquet(folder / TABLE, combined)
    write_prompts(get_prompts_path(folder / TABLE), prompts)
    return combined


def write_prompts(path: Path, prompts: Mapping[str, Mapping[str, Any]]) -> None:
    """Write prompts to the file beside the table that routers read; those of earlier batches are kept."""
    lines = dict.fromkeys(path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())
    lines |= dict.fromkeys(json.dumps(prompt) for prompt in prompts.values())
    artifacts.write_text(path, "".join(f"{line}\n" for line in lines))


def write_summary(inputs: ServiceInputs, rows: pd.DataFrame) -> None:
    """Print the tables by team and domain, and write them under --out.

    Args:
        inputs: Inputs of the evaluation.
        rows: Rows of the outcome table.
    """
    folder = inputs.options.out
    num_samples = inputs.options.samples
    summary = service_results.summarize(rows, num_samples)
    endings = service_results.count_endings(rows)
    passes = service_results.estimate_passes(rows, num_samples)
    if not passes.empty:
        artifacts.write_parquet(folder / "passes.parquet", passes.reset_index())
    with pd.option_context("display.max_colwidth", 60, "display.width", 240):
        lines = [
            *inputs.notes,
            f"The user is played by {inputs.options.user}.",
            "",
            "Teams (an agent alone, or with the models that it may ask)",
            summary.to_string(index=False, na_rep=""),
            "",
            "Why conversations ended",
            endings.to_string(),
        ]
    num_lost = int(rows["correct"].isna().sum())
    if num_lost:
        lines += [
            "",
            f"{num_lost} of {len(rows)} trials are not scored; the same command repeats them.",
        ]
    text = "\n".join(lines)
    artifacts.write_text(folder / "summary.txt", text)
    print(text)
    print(f"\nrows and summary: {folder}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; a mistake in the input ends it with one line of explanation and the exit code 2."""
    return run_command(read_options(argv), evaluate)

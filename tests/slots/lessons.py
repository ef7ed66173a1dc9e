"""Every documented slot for a model, each filled by a model behind a server: the lessons' own experiments, very small.

A slot is played by a function of the server's address and of a folder. It returns the rows that the lesson makes of
the model. Left out: the notebooks around the experiments.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from lib import config
from lib.agent_configuration import experiment as configuration
from lib.agent_configuration.variants import NAMED as CONFIGURATION_VARIANTS
from lib.budgeted_routing import experiment as routing
from lib.budgeted_routing.variants import VARIANTS_BY_NAME as ROUTING_VARIANTS
from lib.conductor import experiment as conductor
from lib.conductor.variants import VARIANTS_BY_NAME as CONDUCTOR_VARIANTS
from lib.config import Params
from lib.config.load import LAB_ORCHESTRATOR
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.llm.open_models import open_models
from lib.orchestration import ablations, experiment, judged_episodes
from lib.tasks.scorers.judge_scorer import JudgeScorer
from lib.tool_orchestration import episode_specs, evaluate_command, tool_outcomes
from tests.agent_configuration.test_experiment import lab_models as make_team_models
from tests.agent_configuration.test_experiment import settings as make_team_settings
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.test_experiment import settings as make_routing_settings
from tests.conductor import small as conductor_small
from tests.conductor.test_experiment import settings as make_conductor_settings
from tests.language_models import tiny
from tests.orchestration import zoo
from tests.slots.models import NAME, draw_arithmetic, make_endpoint
from tests.tool_orchestration import common

Play = Callable[[str, Path], pd.DataFrame]
DOMAIN = "education"
WORD = "lab-large"  # of a lab controller, for which the model stands


def add_endpoint(params: Params, url: str, **sections: Any) -> Params:
    """The parameters with the model at a URL and with changes of sections; nothing is recorded."""
    content = params.model_dump()
    models = content["llm"]["models"] | {NAME: make_endpoint(url)}
    content["llm"] |= {"models": models, "cassette": "off"}
    for section, changes in sections.items():
        content[section] = content[section] | changes
    return config.validate_settings(content)


def write_lab_models(root: Path, trained: dict[str, Any]) -> Path:
    """Every lab model that the parameters name, with a card: `trained` ones by name, others write at random."""
    backends = small_systems.SMOKE_PARAMS.llm.models
    names = {model.model or name for name, model in backends.items() if model.backend == "lab"}
    for seed, name in enumerate(sorted(names | set(trained))):
        weights = trained.get(name) or tiny.model(seed, hidden=16, intermediate=16)
        folder = checkpoints.save(weights, root / name)
        artifacts.write_json(folder / "card.json", common.card({}, 0.001, 1000.0))
    return root


# Lesson 02 ----------------------------------------------------------------------------------------


def make_decision_settings(url: str, **orchestration: Any) -> Params:
    """Two short episodes of one seed in which the model decides, and is the judge."""
    params = config.settings(
        profile="smoke", education={"horizon": 6}, minigrid={"horizon": 6}, zoo={"seeds": 1}
    )
    changes = {"episodes": 2, "students": 2, "training": 2, "jobs": 1}
    slots = {"model": NAME, "judge": NAME}
    ablation = {"model": NAME}
    return add_endpoint(
        params, url, orchestration=changes | slots | orchestration, ablations=ablation
    )


def write_zoo(root: Path) -> Path:
    """The policies to choose from."""
    zoo.write(root, DOMAIN, zoo.cards(DOMAIN), seeds=1)
    return root


def play_prompted_model(url: str, root: Path) -> pd.DataFrame:
    """Episodes of KO, TO and RO."""
    params = make_decision_settings(url, model=LAB_ORCHESTRATOR, prompted=[NAME])
    episodes, _ = experiment.run_prompted(
        params, [DOMAIN], zoo=write_zoo(root / "zoo"), runs=root / "runs"
    )
    return episodes


def play_deciding_model(url: str, root: Path) -> pd.DataFrame:
    """Episodes of the whole experiment in one world, of the methods in which the model decides."""
    params = make_decision_settings(url)
    zoo_folder = write_zoo(root / "zoo")
    episodes = experiment.run(params, [(DOMAIN, "varied")], zoo_folder, root / "runs", root)
    return episodes[episodes["model"] == NAME]


def play_judge_of_trajectories(url: str, root: Path) -> pd.DataFrame:
    """Scores of the episodes of a scripted KO."""
    params = make_decision_settings(url)
    _, steps = experiment.run_prompted(
        params, [DOMAIN], ["scripted-small"], write_zoo(root / "zoo"), root / "runs"
    )
    steps = steps[steps["orchestrator"] == "KO"]
    return judged_episodes.score_episodes(params, steps, root / "runs", root / "cassettes")


# Lesson 04 and scorers ----------------------------------------------------------------------------


def play_judge_of_rewards(url: str, root: Path) -> pd.DataFrame:
    """Rollouts of the method whose reward is a judge."""
    checkpoints.save(conductor_small.schooled(), root / "models" / conductor_small.SMOKE.policy)
    params = add_endpoint(make_conductor_settings(), url, conductor={"judge": NAME})
    compared = [CONDUCTOR_VARIANTS["judge"]]
    results = conductor.run(params, compared, root / "models", root / "runs")
    return results.rollouts[results.rollouts["method"] == "judge"]


def play_scorer(url: str, root: Path) -> pd.DataFrame:
    """Scores of `--scorer judge:MODEL`, of a right reply and of a wrong one."""
    params = add_endpoint(small_systems.SMOKE_PARAMS, url)
    (item,) = draw_arithmetic("big", 1)
    replies = [item.reference, "none of them"]

    async def score():
        async with open_models(params.llm, [NAME], "scorer", root, root) as models:
            return await JudgeScorer(models[NAME])._score_batch([item, item], replies)

    scores = asyncio.run(score())
    return pd.DataFrame({"score": [score.value for score in scores]})


# Lessons 05 to 07 ---------------------------------------------------------------------------------


def play_expert(url: str, root: Path) -> pd.DataFrame:
    """Outcomes of the expert on chains."""
    base = make_routing_settings()
    params = add_endpoint(base, url, routing={"experts": {"lab-nano": "nano", WORD: NAME}})
    models = write_lab_models(
        root / "models", {params.routing.base: small_systems.make_protocol_model()}
    )
    results = routing.run(params, [ROUTING_VARIANTS["corl"]], models, root / "runs")
    return results.experts[results.experts["method"] == WORD]


def play_tool(url: str, root: Path) -> pd.DataFrame:
    """Outcomes of the model as a tool by itself, with the kind of each question."""
    content = add_endpoint(small_systems.SMOKE_PARAMS, url).model_dump()
    content["tools"]["models"][WORD] = NAME
    params = config.validate_settings(content)
    models = write_lab_models(root / "models", {})
    outcomes = tool_outcomes.measure_tool_outcomes(params, 12, models, root / "runs")
    kinds = {}
    for split in ("dev", "test"):
        questions = episode_specs.draw_questions_evenly(12, split, tool_outcomes.QUESTION_SEED)
        kinds |= {(split, number): item.group for number, item in enumerate(questions)}
    keys = zip(outcomes["split"], outcomes["item"], strict=True)
    outcomes = outcomes.assign(group=[kinds[key] for key in keys])
    return outcomes[outcomes["method"] == WORD]


def play_agent(url: str, root: Path) -> pd.DataFrame:
    """The pilot study of `evaluate toolorchestra`, whose orchestrator is the model by its place in the parameters."""
    questions = root / "questions.jsonl"
    lines = []
    for family in ("chain", "big"):
        for item in draw_arithmetic(family, 12):
            line = {"id": item.id, "prompt": item.prompt, "reference": item.reference}
            lines.append(json.dumps(line | {"group": family}))
    questions.write_text("\n".join(lines))
    arguments = ["--data", str(questions), "--out", str(root / "out"), "--profile", "smoke"]
    arguments += ["--experts", "scripted-small,scripted-large", "--questions", "8"]
    arguments += ["--set", f"llm.models.{NAME}={json.dumps(make_endpoint(url))}"]
    assert evaluate_command.main([*arguments, "--set", f"agent={NAME}"]) == 0
    return artifacts.read_parquet(root / "out/pilot.parquet")


def play_team(url: str, root: Path) -> pd.DataFrame:
    """Tests of ARC's agents, of both models, and of the prompted policies."""
    base = make_team_settings()
    slots = {"model": NAME, "larger": NAME, "prompted": NAME}
    params = add_endpoint(base, url, configuration=slots)
    models = make_team_models(root / "models")
    compared = [CONFIGURATION_VARIANTS["arc"]]
    return configuration.run(params, compared, models, root / "runs").tests


# Lesson 09 ----------------------------------------------------------------------------------------


def play_ablations(url: str, root: Path) -> pd.DataFrame:
    """Episodes of KO, TO and RO with less memory."""
    comparison = ablations.compare_memory(
        make_decision_settings(url), DOMAIN, write_zoo(root / "zoo"), runs=root / "runs"
    )
    return comparison.frame.assign(backend=comparison.backend)


SLOTS: dict[str, Play] = {
    "orchestration.model": play_deciding_model,
    "orchestration.prompted": play_prompted_model,
    "orchestration.judge": play_judge_of_trajectories,
    "conductor.judge": play_judge_of_rewards,
    "--scorer judge:MODEL": play_scorer,
    "routing.experts": play_expert,
    "tools.models": play_tool,
    "tools.agent": play_agent,
    "configuration.model": play_team,
    "ablations.model": play_ablations,
}

"""A newcomer's policy, reward and router: one place each, and everything that follows takes them up by itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REWARD = '''

@dataclass(frozen=True)
class WorstFirst:
    """The worst of the objectives, so that none is forgotten."""

    def __call__(self, reward: np.ndarray, observation: np.ndarray) -> np.ndarray:
        return reward.min(axis=1)

    def describe_reward(self, objective_names: Sequence[str]) -> str:
        return f"the worst of {', '.join(objective_names)}"


OBJECTIVE_TYPES["WorstFirst"] = WorstFirst
'''
ROUTER = """

@register_router("always the most expensive")
def choose_most_expensive(
    train: OutcomeMatrix, test: OutcomeMatrix, budget: float, seed: int
) -> RouterResult:
    return score_choices(test, np.full(test.num_questions, train.columns_by_cost[-1]))
"""
TRY = """
import sys
from pathlib import Path
from lib import config, stats
from lib.policy_zoo import evaluate, recipes, train
smoke = config.load("smoke")
place = Path(sys.argv[1])
built = train.build_zoo(smoke, "education", place / "zoo", place / "runs")
steps = evaluate.evaluate(smoke, evaluate.make_actors(built.policies), "education", smoke.education.topic)
rows = evaluate.make_rows(evaluate.summarize_episodes(steps, "education"), "education", smoke.education.topic)
assert "MO-worst" in stats.mean(rows, "reward", "method").index, "the policy was not measured"
(recipe,) = [each for each in recipes.list_recipes(smoke, "education") if each.name == "MO-worst"]
description = recipe.objective.describe_reward(recipes.OBJECTIVES["education"])
assert description.startswith("the worst of"), description
from tests.budgeted_routing.test_baselines import BUDGETS, make_able_controller
from lib.budgeted_routing import baselines
found = baselines.compare_baselines(make_able_controller(40, 0), make_able_controller(20, 1), BUDGETS)
assert "always the most expensive" in set(found["method"]), "the router was not compared"
from lib.budgeted_routing import results
from tests.budgeted_routing.worked_example import make_study
rows = results.make_world_rows(make_study(), "w")
assert "always the most expensive" in set(rows["method"]), "the router is not in the results"
"""


@pytest.fixture
def copy(tmp_path):
    for name in ("lib", "tests", "data/bank"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def test_a_reward_a_policy_and_a_router_are_added_in_three_files(copy):
    edits = {
        "lib/policy_zoo/objectives.py": lambda text: text + REWARD,
        "lib/policy_zoo/recipes.py": lambda text: text.replace(
            '"MO-RM": RewardMachine(),', '"MO-RM": RewardMachine(), "MO-worst": WorstFirst(),'
        ).replace("    VectorReward,\n)", "    VectorReward,\n    WorstFirst,\n)"),
        "lib/budgeted_routing/baselines.py": lambda text: text + ROUTER,
    }
    for name, edit in edits.items():
        before = (copy / name).read_text()
        assert edit(before) != before, f"{name} has changed its shape"
        (copy / name).write_text(edit(before))
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(copy / "made")],
        cwd=copy,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]

"""What it is worth to let orchestrators work side by side.

Orchestrator and model tools have the sizes of the laptop profile and random weights; models are asked as the command
asks them, functions are the real ones. Untrained orchestrators never call, so that this one's turns are written by the
engine as any other and then read as calls: every other call asks a model, the others go to calculator, search and
python in turn. Goal: a batch as large as an update's is rolled out ten times as fast as its episodes one after another.
"""

from collections import Counter

import pytest

from lib import config, tasks
from lib.experiment import seeds
from lib.language_models import checkpoints
from lib.language_models.chat_template import format_tool_call
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.lab_model import LabModel
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.tokenizer import encode
from lib.llm.open_models import ChatModels
from lib.rl.expert_pool import ExpertPool
from lib.rl.generators import LabGenerator
from lib.tool_orchestration import episode_specs, tool_environment, tool_menu
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import ToolEnvironment, roll_out_assignments
from lib.tool_orchestration.tool_menu import FUNCTIONS, ToolMenu, UserPreference
from tests.benchmarks.clock import compare, relax, scale

GOAL = 10.0
SETTINGS = config.load("laptop")
TOOLS = SETTINGS.tools
ALONE = 8  # episodes that are really rolled out one after another
WORDS = ("lab-nano", "calculator", "lab-mini", "search", "lab-large", "python")
BATCH = TOOLS.groups * TOOLS.rollouts

pytestmark = pytest.mark.usefixtures("one_thread")


class Calling(LabGenerator):
    """Writes as any orchestrator of the lab does, and then says a call in place of what it wrote."""

    def write_turns(self, contexts, turn_seeds, temperature):
        written = super().write_turns(contexts, turn_seeds, temperature)
        return [
            encode(format_tool_call(WORDS[seed % len(WORDS)], f"{seed % 10} + {seed // 10 % 10}"))
            for seed, _ in zip(turn_seeds, written, strict=True)
        ]


@pytest.fixture(scope="module")
def desk():
    """Models with random weights and prices of their own, and the real functions."""
    shapes, names = (
        SETTINGS.lab.models,
        {word: name for word, name in TOOLS.models.items() if word in WORDS},
    )
    models = {}
    for index, (word, name) in enumerate(names.items()):
        settings = SETTINGS.llm.models[name].model_copy(
            update={"price_in": 1e-6, "price_out": 1e-6, "max_tokens": 32}
        )
        served = ServedModel(word, Forward(checkpoints.fresh(shapes[word], index)))
        models[name] = LabModel(served, settings, name=name)
    pool = ExpertPool(ChatModels(models), names, TOOLS.model_temperature)
    with pool, ToolEnvironment(pool, dict.fromkeys(names, 1e-3)) as opened:
        yield opened
    for model in models.values():
        model.stop()


@pytest.fixture(scope="module")
def generator():
    model = checkpoints.fresh(SETTINGS.lab.models["lab-caller"], 7).eval()
    return Calling(model, TOOLS.turn_tokens, TOOLS.response_tokens)


@pytest.fixture(autouse=True)
def short_prompts(monkeypatch):
    """Menus in English do not fit into the window of a lab model, and what is read once is not what is timed."""

    def write_question(assignment: Assignment) -> list[dict[str, str]]:
        return [{"role": "user", "content": assignment.prompt}]

    monkeypatch.setattr(tool_environment, "write_plain_messages", write_question)


def wanted(n: int) -> list[Assignment]:
    """Questions with all tools that are called on their menu."""
    card = {"dollars_per_1k_tokens": 1e-3, "tokens_per_second": 1e3, "accuracy": []}
    prices = tool_menu.read_price_list(config.ROOT / TOOLS.prices)
    told = tool_menu.make_offers(prices, {word: card for word in WORDS if word not in FUNCTIONS})
    questions = tasks.draw_items("chain", "train", n, episode_specs.DIFFICULTIES["chain"], seed=0)
    rng = seeds.rng("a benchmark")
    return [
        Assignment(
            item,
            ToolMenu(tuple(told[WORDS[i]] for i in rng.permutation(len(WORDS)))),
            UserPreference(1.0, 0.5, 0.5),
        )
        for item in questions
    ]


def test_a_batch_of_episodes_is_rolled_out_many_times_as_fast_as_its_episodes_one_after_another(
    desk, generator
):
    asked = wanted(BATCH)
    played = roll_out_assignments(generator, desk, asked, TOOLS.rounds, 0)
    counts = Counter(name for e in played for name in e.called_experts)
    assert set(counts) == set(WORDS) and all(
        len(e.called_experts) >= 2 and e.cost_usd > 0 for e in played
    )
    goal, alone = relax(GOAL), scale(ALONE, least=4)
    times = compare(
        lambda: [
            roll_out_assignments(generator, desk, [each], TOOLS.rounds, 0) for each in asked[:alone]
        ],
        lambda: roll_out_assignments(generator, desk, asked, TOOLS.rounds, 0),
        goal,
        units=(alone, len(asked)),
    )
    print(
        f"\n{len(asked)} episodes with {counts.total()} calls: {len(asked) * times.fast:.2f} s at once, "
        f"{len(asked) * times.slow:.2f} s one by one: {times.ratio:.1f}x; {1 / times.fast:.0f} episodes/s"
    )
    assert times.ratio >= goal

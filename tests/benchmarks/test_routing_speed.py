"""What it is worth to play episodes side by side, and how long an update of the controller takes.

Controller and experts have the sizes of the laptop profile and random weights; experts are asked as the lesson asks
them. Untrained controllers never call, so that this one's turns are written by the
engine as any other and then read as calls: three of an episode's four turns ask an expert. Goal: a batch as large as an
update's is played five times as fast as its episodes one after another; and ten seeds that meet the same questions
ask experts three times as fast as if nobody remembered what they said.
"""

import time
from functools import partial

import numpy as np
import pytest

from lib import config, tasks
from lib.budgeted_routing import experiment
from lib.budgeted_routing.budget_episodes import Task, roll
from lib.language_models import checkpoints
from lib.language_models.in_process_client import Asker
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.reply_cache import Memory
from lib.language_models.serving.chat_completions import Model
from lib.language_models.serving.transport import LabTransport
from lib.language_models.tokenizer import encode
from lib.llm.client import Client
from lib.rl import call_protocol
from lib.rl.expert_pool import TRIES, Pool, Query, drawn
from lib.rl.generators import Lab
from tests.benchmarks.clock import seconds

GOAL = 5.0
SETTINGS = config.load("laptop")
ROUTING = SETTINGS.routing
SEEDS = 10
ALONE = 8  # episodes that are really played one after another

pytestmark = pytest.mark.usefixtures("one_thread")


class Calling(Lab):
    """Writes as any controller of the lab does, and then says a call in place of what it wrote."""

    def write(self, contexts, keys, temperature):
        written = super().write(contexts, keys, temperature)
        return [
            encode(
                call_protocol.call(
                    list(ROUTING.experts)[key % 4], f"{key % 10} + {key // 10 % 1_000} = ?"
                )
            )
            for key, _ in zip(keys, written, strict=True)
        ]


@pytest.fixture(scope="module")
def pools():
    """Makes pools of experts with random weights and prices of their own, and with a memory."""
    shapes = SETTINGS.lab.models
    models = {
        name: Model(name, Forward(checkpoints.fresh(shapes[name], i)))
        for i, name in enumerate(ROUTING.experts)
    }
    priced = {
        name: SETTINGS.llm.models[name].model_copy(
            update={"price_in": 1e-6, "price_out": 1e-6, "max_tokens": 32}
        )
        for name in ROUTING.experts.values()
    }
    llm, transport = SETTINGS.llm.model_copy(update={"models": priced}), LabTransport(models)
    askers = {name: Asker(models[word]) for word, name in ROUTING.experts.items()}

    def made(memory: Memory | None) -> Pool:
        for asker in askers.values():
            asker.memory = memory or Memory(None)
        client = partial(Client, llm, {"lab": transport})
        return Pool(client, ROUTING.experts, ROUTING.expert_temperature, askers=askers)

    yield made
    for asker in askers.values():
        asker.close()
    transport.close()


@pytest.fixture
def pool(pools):
    with pools(None) as made:
        yield made


def controller():
    return checkpoints.fresh(SETTINGS.lab.models[ROUTING.base], 7).eval()


def wanted(n: int) -> list[Task]:
    items = tasks.spread(ROUTING.questions, "train", n)
    return [Task(item, "soft", call_protocol.WORDS[i % 3], 1.0) for i, item in enumerate(items)]


def test_a_batch_of_episodes_is_played_many_times_as_fast_as_its_episodes_one_after_another(pool):
    voice = Calling(controller(), ROUTING.turn_tokens, ROUTING.response_tokens)
    asked = wanted(ROUTING.batch)
    played = roll(voice, pool, asked, ROUTING.rounds, 0)
    assert all(len(e.calls) == ROUTING.rounds - 1 and e.cost_usd > 0 for e in played)
    lengths = [x.heard.tokens_out for e in played for x in e.exchanges if x.heard]
    assert sum(lengths) / len(lengths) > 24  # experts really write
    together = seconds(lambda: roll(voice, pool, asked, ROUTING.rounds, 0))
    alone = seconds(
        lambda: [roll(voice, pool, [each], ROUTING.rounds, 0) for each in asked[:ALONE]]
    )
    ratio = alone / ALONE / (together / len(asked))
    calls = len(asked) * (ROUTING.rounds - 1)
    print(
        f"\n{len(asked)} episodes with {calls} calls: {together:.2f} s at once, {alone / ALONE * len(asked):.2f} s one "
        f"by one: {ratio:.1f}x; {len(asked) / together:.0f} episodes/s"
    )
    assert ratio >= GOAL


def test_ten_seeds_pay_once_for_what_experts_say(pools, tmp_path):
    """Every seed asks experts by lot about questions by lot, in tries by lot, from a pool as the lesson's."""
    pool = experiment.train_items(ROUTING.model_copy(update={"train_items": 120}))
    rng = np.random.default_rng(0)
    names, draws = (
        list(ROUTING.experts),
        [rng.integers([4, 120, TRIES], size=(600, 3)).tolist() for _ in range(SEEDS)],
    )
    asked = [
        [Query(names[e], pool[i].prompt, drawn(pool[i].prompt, t)) for e, i, t in mine]
        for mine in draws
    ]

    def all_seeds(memories) -> list:
        said = []
        for queries, memory in zip(asked, memories, strict=True):
            with pools(memory) as made:
                said.append(made.ask(queries))
        return said

    def timed(memories) -> tuple[list, float]:
        began = time.perf_counter()  # once: a second round would find everything remembered
        return all_seeds(memories), time.perf_counter() - began

    kept = Memory(tmp_path / "lab.sqlite")
    with pools(Memory(None)) as pool_of_experts:  # the first replies pay for reading the models
        pool_of_experts.ask(asked[0])
    (forgot, without), (knew, remembered) = (
        timed([Memory(None) for _ in range(SEEDS)]),
        timed([kept] * SEEDS),
    )
    kept.close()
    print(
        f"\nten seeds: {without:.1f} s without a memory, {remembered:.1f} s with one: {without / remembered:.1f}x"
    )
    assert forgot == knew and without / remembered >= 3

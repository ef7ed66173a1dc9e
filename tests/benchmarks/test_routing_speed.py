"""What it is worth to play episodes side by side, and how long an update of the controller takes.

Controller and experts have the sizes of the laptop profile and random weights; experts are asked through the real
client and the lab's own transport. Untrained controllers never call, so that this one's turns are written by the
engine as any other and then read as calls: three of an episode's four turns ask an expert. Goal: a batch as large as an
update's is played five times as fast as its episodes one after another.
"""

import pytest

from lib import params, tasks
from lib.llm.client import Client
from lib.models import checkpoints
from lib.models.answering import Model
from lib.models.dialogue import token
from lib.models.forward import Forward
from lib.models.tokenizer import PAD, encode
from lib.models.transport import LabTransport
from lib.routing import protocol, study
from lib.routing.experts import Pool
from lib.routing.learn import Learner
from lib.routing.rollouts import Task, roll
from lib.routing.voices import Lab
from tests.benchmarks.clock import seconds

GOAL = 5.0
SETTINGS = params.load("laptop")
ROUTING = SETTINGS.routing
ALONE = 8  # episodes that are really played one after another

pytestmark = pytest.mark.usefixtures("one_thread")


class Calling(Lab):
    """Writes as any controller of the lab does, and then says a call in place of what it wrote."""

    def write(self, contexts, keys, temperature):
        written = super().write(contexts, keys, temperature)
        return [
            encode(protocol.call(list(ROUTING.experts)[key % 3], f"{key % 10} + {key // 10 % 10} = ?"))
            for key, _ in zip(keys, written, strict=True)
        ]


@pytest.fixture(scope="module")
def pool():
    """Experts with random weights and prices of their own."""
    shapes = SETTINGS.lab.models
    models = {name: Model(name, Forward(checkpoints.fresh(shapes[name], i))) for i, name in enumerate(ROUTING.experts)}
    priced = {
        name: SETTINGS.llm.models[name].model_copy(update={"price_in": 1e-6, "price_out": 1e-6, "max_tokens": 32})
        for name in ROUTING.experts.values()
    }
    llm, transport = SETTINGS.llm.model_copy(update={"models": priced}), LabTransport(models)
    with Pool(lambda: Client(llm, {"lab": transport}), ROUTING.experts, ROUTING.expert_temperature) as made:
        yield made
    transport.close()


def controller():
    return checkpoints.fresh(SETTINGS.lab.models[ROUTING.base], 7).eval()


def wanted(n: int) -> list[Task]:
    items = tasks.draw("chain", "train", n, ROUTING.difficulties, seed=0)
    return [Task(item, "soft", protocol.WORDS[i % 3], 1.0) for i, item in enumerate(items)]


def test_a_batch_of_episodes_is_played_many_times_as_fast_as_its_episodes_one_after_another(pool):
    voice = Calling(controller(), ROUTING.turn_tokens, ROUTING.response_tokens)
    asked = wanted(ROUTING.batch)
    played = roll(voice, pool, asked, ROUTING.rounds, 0)
    assert all(len(e.calls) == ROUTING.rounds - 1 and e.dollars > 0 for e in played)
    lengths = [x.heard.tokens_out for e in played for x in e.exchanges if x.heard]
    assert sum(lengths) / len(lengths) > 24  # experts really write
    together = seconds(lambda: roll(voice, pool, asked, ROUTING.rounds, 0))
    alone = seconds(lambda: [roll(voice, pool, [each], ROUTING.rounds, 0) for each in asked[:ALONE]])
    ratio = alone / ALONE / (together / len(asked))
    calls = len(asked) * (ROUTING.rounds - 1)
    print(
        f"\n{len(asked)} episodes with {calls} calls: {together:.2f} s at once, {alone / ALONE * len(asked):.2f} s one "
        f"by one: {ratio:.1f}x; {len(asked) / together:.0f} episodes/s"
    )
    assert ratio >= GOAL


def test_an_update_takes_seconds(pool):
    """PPO as the laptop profile has it; nothing is asked of the time, it is told."""
    voice = Calling(controller(), ROUTING.turn_tokens, ROUTING.response_tokens)
    told = study.samples(roll(voice, pool, wanted(ROUTING.batch), ROUTING.rounds, 0))
    learner = Learner(controller(), ROUTING.learn, token(PAD), 100)
    first = learner.update(told)
    took = seconds(lambda: learner.update(told))
    own, all_ = (sum(sum(s.mask) for s in told), sum(len(s.ids) for s in told))
    print(
        f"\nPPO update: {took:.2f} s for {len(told)} episodes, {ROUTING.learn.epochs} passes in minibatches of "
        f"{ROUTING.learn.minibatch}, {all_} tokens of which {own} are learned"
    )
    assert first["ratio"] == 0.0 and learner.step == 5

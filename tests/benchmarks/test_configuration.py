"""What it is worth that the episodes of a batch are under way together.

Agents have the size of the laptop profile and random weights, the tools are the real ones. Untrained agents neither
call nor come to an end: who has tools writes a few tokens that are read as a call, and then uses all of its budget, so
that an episode is longer here than a trained agent's. Equal requests are answered once; here every engine is a new one.
Goals: a batch as large as an update's is played three times as fast as its episodes one after another; and the batches
of five trainings, one for each kind of question, faster together than one training after another. Printed are episodes
a second, of which the full run needs 60.
"""

from dataclasses import replace

import pytest

from lib import config
from lib.agent_configuration import atoms, experiment, search
from lib.agent_configuration.action_space import AGENTS, WORKFLOWS
from lib.agent_configuration.agent_models import LabAgentModel
from lib.agent_configuration.agent_system import ConfiguredQuestion, System
from lib.agent_configuration.questions import KINDS, questions
from lib.language_models import checkpoints
from lib.language_models.chat_template import format_tool_call
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.lab_model import LabModel
from lib.language_models.serving.chat_completions import ServedModel
from lib.llm.chat_model import ToolCall
from lib.llm.event_loop import EventLoopThread
from lib.tools import Sandbox
from tests.benchmarks.clock import compare, relax, scale

GOAL = 3.0
ALONE = 32  # episodes that are really played one by one
SETTINGS = config.load("laptop")
OWN = SETTINGS.configuration
BATCH = OWN.ppo.batch
EPISODES = 4_000  # of a training (ARC, appendix F)
CARD = {"dollars_per_1k_tokens": 1e-3, "tokens_per_second": 1e3}
CALL = 6  # tokens of a turn that is read as a call
ASKED = {
    "calculator": "47 * 38",
    "search": "home of Ana",
    "lookup": "home Ana",
    "python": "47 * 38",
}

LIBRARY = atoms.select_atoms(atoms.read_library(config.ROOT / OWN.atoms), "lab")
ATOM_NAMES = [[atom.name for atom in LIBRARY if atom.role == role] for role in AGENTS]
TOGETHER_GOAL = 1.2  # five trainings side by side, beside one after another
WANTED = 60  # episodes a second of the full run

pytestmark = pytest.mark.usefixtures("one_thread")


class Calling(LabAgentModel):
    """Writes as any agent of the lab does; the first of two turns with tools is short and then read as a call."""

    async def take_turn(self, messages, tools, max_tokens, key):
        # At first two messages, then two more with each call.
        if not tools or len(messages) % 4 == 0:
            return await super().take_turn(messages, tools, max_tokens, key)
        reply = await super().take_turn(messages, tools, min(max_tokens, CALL), key)
        name = list(tools)[key % len(tools)]
        text = format_tool_call(name, ASKED[name])
        message = {"role": "assistant", "content": text}
        call = ToolCall("", name, ASKED[name])
        return replace(reply, text=text, tool_calls=(call,), message=message, failure=None)


@pytest.fixture(scope="module")
def model():
    shape = SETTINGS.lab.models[SETTINGS.llm.models[OWN.model].model]
    return ServedModel("team", Forward(checkpoints.fresh(shape, 7).eval()), CARD)


@pytest.fixture(scope="module")
def play(model):
    """Plays batches of jobs one after another with a new engine, and gives the system and all outcomes."""
    told = atoms.collect_prompts(LIBRARY, "lab")
    loop = EventLoopThread()
    with Sandbox() as sandbox:
        tools = experiment.make_toolbox(sandbox)

        def play_batches(*batches):
            engine = LabModel(model)
            agents = Calling(engine, OWN.temperature)
            system = System(agents, tools, OWN.tiers, told, loop)
            outcomes = [outcome for jobs in batches for outcome in system.run(jobs)]
            engine.stop()
            return system, outcomes

        yield play_batches
    loop.close()


@pytest.fixture(scope="module")
def jobs():
    """Questions of all kinds under configurations of all workflows."""
    items = [questions(kind.name, "train", BATCH)[i] for i in range(BATCH) for kind in KINDS]
    configurations = search.sample_configurations(BATCH, ATOM_NAMES)
    return [ConfiguredQuestion(*pair) for pair in zip(items, configurations, strict=False)]


@pytest.fixture(scope="module")
def batches():
    """An update's batch of each kind of question."""
    configurations = search.sample_configurations(BATCH * len(KINDS), ATOM_NAMES)
    by_kind = []
    for number, kind in enumerate(KINDS):
        own = configurations[number * BATCH : (number + 1) * BATCH]
        pairs = zip(questions(kind.name, "train", BATCH), own, strict=True)
        by_kind.append([ConfiguredQuestion(*pair) for pair in pairs])
    return by_kind


def test_a_batch_of_episodes_is_played_many_times_as_fast_as_its_episodes_one_after_another(
    play, jobs
):
    _, at_once = play(jobs)
    assert {job.configuration.workflow for job in jobs} == set(WORKFLOWS) and len(jobs) == BATCH
    assert {name for outcome in at_once for name in outcome.tools} == set(ASKED)
    _, by_one = play(*([job] for job in jobs))
    assert [o.text for o in by_one] == [o.text for o in at_once]  # the same episodes
    goal, alone = relax(GOAL), jobs[:: BATCH // scale(ALONE, least=8)]  # of all workflows
    times = compare(
        lambda: play(*([job] for job in alone)),
        lambda: play(jobs),
        goal,
        units=(len(alone), len(jobs)),
        rounds=2,
    )
    calls, written = (sum(getattr(o, name) for o in at_once) for name in ("calls", "tokens_out"))
    print(
        f"\n{BATCH} episodes with {calls} calls of agents and {written} tokens: {BATCH * times.fast:.2f} s at once, "
        f"{BATCH * times.slow:.2f} s one by one: {times.ratio:.1f}x; {1 / times.fast:.0f} episodes/s, "
        f"{EPISODES:,} in {EPISODES * times.fast:.0f} s"
    )
    assert times.ratio >= goal


def test_trainings_of_all_kinds_are_played_faster_together_than_one_after_another(play, batches):
    together = [job for batch in batches for job in batch]
    _, at_once = play(together)
    _, in_turn = play(*batches)
    assert [o.text for o in in_turn] == [o.text for o in at_once]  # the same episodes
    goal = relax(TOGETHER_GOAL)
    times = compare(lambda: play(*batches), lambda: play(together), goal, rounds=2)
    per_second = len(together) / times.fast
    print(
        f"\n{len(together)} episodes of {len(batches)} trainings: {times.fast:.2f} s together, {times.slow:.2f} s in "
        f"turn: {times.ratio:.1f}x; {per_second:.0f} episodes/s of untrained agents, {WANTED} are wanted"
    )
    assert times.ratio >= goal

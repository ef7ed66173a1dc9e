"""The paper's settings run: same models, lengths and rewards, few steps."""

from lib import config
from lib.conductor import experiment, paper_profile
from lib.conductor.variants import CONDUCTOR
from lib.language_models import checkpoints
from lib.language_models.training import released_weights


def test_only_counts_are_shrunk():
    paper, shrunk = config.load("paper").conductor, paper_profile.load_shrunk_paper_profile()
    own = shrunk.conductor
    assert shrunk.profile == "paper" and own.head == paper.head and own.rewards == paper.rewards
    assert own.grpo == paper.grpo.model_copy(update={"epochs": 1})
    assert own.policy == paper.policy and own.samples == paper.samples
    assert own.prompts == 3 * paper.grpo.prompts_per_step < paper.prompts


def test_the_papers_settings_train_and_test_a_policy(monkeypatch, tmp_path):
    seen = []
    run = experiment.run

    def spy(params, compared, *arguments, **options):
        seen.append(run(params, compared, *arguments, **options))
        return seen[-1]

    monkeypatch.setattr(experiment, "run", spy)
    # In a folder of its own: the project's models were measured at another profile.
    policy = config.load("smoke").conductor.policy
    weights = released_weights.unpack(policy, config.load("smoke").lab.models[policy])
    models = tmp_path / "models"
    checkpoints.save(weights, models / policy)
    assert paper_profile.run_shrunk_paper_profile(models)
    (results,) = seen
    steps = results.rollouts.groupby("step").size()
    assert set(results.rollouts["method"]) == {CONDUCTOR.name}
    assert steps.tolist() == [75] * paper_profile.NUM_STEPS

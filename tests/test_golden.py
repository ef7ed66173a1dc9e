"""A number that changed has a VERSION that was raised, and every VERSION that a job depends on is in its key."""

import importlib

import pytest

from tests.golden import SYSTEMS, runner

# Modules that carry settings, files and messages and decide no number of a job.
CARRIERS = (
    "lib.reports.execute.kernel",
    "lib.experiment.process_group",
    "lib.config",
    "lib.experiment.results_table",
    "lib.experiment.artifacts",
    "lib.experiment.run_context",
    "lib.experiment.harness",
    "lib.experiment.training",
    "lib.experiment.evaluation",  # has the seed of all tests; who changes it raises the VERSION of every system
    "lib.experiment.sweep",
    # Parts of an update of weights; who changes what they compute raises the VERSION of lib.rl.token_ppo.
    "lib.rl.critic",
    "lib.rl.policy_model",
    "lib.rl.sharding",
    "lib.rl.token_batch",
    "lib.rl.training_checkpoint",
    "lib.llm.reply_store",
    "lib.llm.chat_completion",
    "lib.llm.chat_model",
    "lib.llm.errors",
    "lib.llm.event_loop",
    "lib.llm.open_models",
    "lib.llm.scripted_model",
    "lib.llm.recorded_model",
    "lib.llm.reply_shares",  # sorts the failures of a job, which it has counted
    "lib.llm.endpoint",
    "lib.llm.failure_policy",
    "lib.llm.parse_response",  # what it reads decides the VERSION of token counts
    "lib.llm.spending_limit",
    "lib.llm.safe_transport",
    "lib.language_models.cache_key",
    "lib.language_models.batching",
    "lib.language_models.training.build",
    "lib.language_models.local_models",
    "lib.language_models.serving.server",
    "lib.language_models.training.released_weights",
    "lib.conductor.silence_libraries",
    "lib.conductor.progress_callback",
    "lib.conductor.training_job",  # who changes what it computes raises the VERSION of `lib.conductor.jobs`
    # Parts of MAESTRO's synthetic environment; who changes them raises the VERSION of `synthetic_benchmark`.
    "lib.conductor.synthetic_environment",
    "lib.conductor.synthetic_methods",
    "lib.conductor.synthetic_training",
    "lib.budgeted_routing.controller_job",  # who changes it raises the VERSION of `lib.budgeted_routing.jobs`
    # Parts of CoRL's synthetic environment; who changes them raises the VERSION of `synthetic_benchmark`.
    "lib.budgeted_routing.synthetic_controllers",
    "lib.budgeted_routing.synthetic_environment",
    "lib.budgeted_routing.synthetic_strategies",
    "lib.budgeted_routing.synthetic_training",
    # Parts of ARC's synthetic environment, of its `synthetic_benchmark` likewise.
    "lib.agent_configuration.synthetic_environment",
    "lib.agent_configuration.synthetic_evaluation",
    "lib.agent_configuration.synthetic_training",
    # Parts of ToolOrchestra's synthetic environment, of its `synthetic_benchmark` likewise.
    "lib.tool_orchestration.synthetic_environment",
    "lib.tool_orchestration.synthetic_evaluation",
    "lib.tool_orchestration.synthetic_training",
    # Of it the lab world has the vector of a user's weights; who changes that raises the VERSION of `lab_training`.
    "lib.tool_orchestration.tool_menu",
    # Parts of a job of lesson 07; who changes what they play or test raises the VERSION of `agent_configuration.jobs`.
    "lib.agent_configuration.experiment",  # opens the agents and hands each job to its function
    "lib.agent_configuration.search_jobs",
    "lib.agent_configuration.training_job",
    "lib.agent_configuration.workbench",
    # Parts of an experiment of lesson 02; who changes what they decide raises the VERSION of `worlds`,
    "lib.orchestration.experiment",
    "lib.orchestration.methods",
    # or of `episode_batch`.
    "lib.orchestration.episode_contexts",
    "lib.orchestration.episode_tables",
    "lib.orchestration.look_ahead",
    "lib.orchestration.menus",
    "lib.orchestration.system_options",
    "lib.orchestration.tool_results",
    "lib.orchestration.training_episodes",
    "lib.rl.controller_training",  # hands what a system collects to the trainer
    "lib.rl.seed_batched",  # runs the code of the network that it is given, by torch, whose version is in the key
)


@pytest.fixture(scope="module", params=SYSTEMS)
def system_run(request, tmp_path_factory):
    system = request.param
    return system, runner.run_system(system, tmp_path_factory.mktemp(system))


def test_the_small_jobs_give_the_recorded_numbers(system_run):
    system, runs = system_run
    problems = runner.compare(
        system, [measured for measured, _ in runs], [executed for _, executed in runs]
    )
    assert not problems, "\n".join(problems)
    classes = [job["results"] for job in runner.read(system)["jobs"]]
    if not all(runner.select_results(results) for results in classes):
        pytest.skip(
            f"no numbers are recorded for {runner.processor()}: python -m tests.golden --record {system}"
        )


def test_every_module_that_decides_numbers_has_a_version_in_the_key_of_the_job(
    system_run, tmp_path, monkeypatch
):
    system, runs = system_run
    modules = [runner.executed_modules(executed) for _, executed in runs]
    holders = {
        module: runner.version_holder(module) for job_modules in modules for module in job_modules
    }
    numbers = {
        holder: 1000 + number
        for number, holder in enumerate(sorted(filter(None, holders.values())))
    }
    for holder, number in numbers.items():
        monkeypatch.setattr(importlib.import_module(holder), "VERSION", number)
    jobs = [small_job.job for small_job in runner.make_small_jobs(system, tmp_path)]
    for job, job_modules in zip(jobs, modules, strict=True):
        deciding = [module for module in job_modules if not module.startswith(CARRIERS)]
        without = [module for module in deciding if holders[module] is None]
        assert not without, (
            f"{system}, {job.label}: no VERSION stands in {without}, nor in their packages"
        )
        in_key = set(job.settings["versions"].values())
        absent = [module for module in deciding if numbers[holders[module]] not in in_key]
        assert not absent, (
            f"{system}, {job.label}: the job runs {absent}, whose VERSIONs are not in its key"
        )


def test_a_forgotten_version_is_reported_with_the_functions_to_look_at(system_run, monkeypatch):
    system, runs = system_run
    recorded = runner.read(system)
    for job, (measured, _) in zip(recorded["jobs"], runs, strict=True):
        job["results"][runner.processor_model()] = runner._as_json(measured["results"])
    monkeypatch.setattr(runner, "read", lambda system: recorded)
    executed = [executed for _, executed in runs]
    changed = [
        measured | {"results": {name: "other" for name in measured["results"]}}
        for measured, _ in runs
    ]
    problems = runner.compare(system, changed, executed)
    assert len(problems) == len(runs)
    for problem in problems:
        assert "no VERSION was raised" in problem and "Functions to look at:\n    lib/" in problem
    raised = [
        measured | {"versions": dict.fromkeys(measured["versions"], 99)} for measured in changed
    ]
    assert all(
        "a VERSION was raised" in problem for problem in runner.compare(system, raised, executed)
    )


def test_a_function_that_was_renamed_or_documented_has_the_same_fingerprint_and_an_edited_one_another():
    def compiled(text: str):
        names: dict = {}
        exec(text, names)
        return next(each for each in names.values() if hasattr(each, "__code__")).__code__

    before = compiled("def gae(rewards):\n    'Sums.'\n    total = rewards + 1\n    return total")
    renamed = compiled("def f(x):\n    'Says more.'\n    y = x + 1  # a comment\n    return y")
    edited = compiled("def gae(rewards):\n    'Sums.'\n    total = rewards + 2\n    return total")
    assert runner.fingerprint(before) == runner.fingerprint(renamed) != runner.fingerprint(edited)

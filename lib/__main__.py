"""One command for everything that a user runs: `python -m lib COMMAND --help`.

Each command is a module of the package that does the work, and is imported when it is asked for. Left out: what only
the pipeline runs (`lib.reports.execute`), and `scripts/doctor.py`, which works before anything is installed.
"""

import signal
from importlib import import_module

import typer

from lib.experiment.process_group import clear_up_at_signals

# The command's own parser reads everything behind its name, --help included.
PASS_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
COMMANDS = {  # module and one line of help, by the words of the command
    "train arc": (
        "lib.agent_configuration.train_command",
        "ARC: a policy that sets up agents for each question, on your model and questions.",
    ),
    "train corl": (
        "lib.budgeted_routing.train_command",
        "CoRL: a controller that pays experts, on your model, questions and endpoints.",
    ),
    "train maestro": (
        "lib.conductor.train_command",
        "MAESTRO: a policy under learned reward weights, on your model and data.",
    ),
    "train toolorchestra": (
        "lib.tool_orchestration.train_command",
        "ToolOrchestra: an orchestrator of tools and models, on your model and questions.",
    ),
    "demonstrate maestro": (
        "lib.conductor.pretrained_demonstration",
        "Equal weights and the Conductor on SmolLM2-135M: 40 steps each, kept as a table of facts.",
    ),
    "evaluate maestro": (
        "lib.conductor.evaluate_command",
        "A policy that `train maestro` trained against its start, by exact answers and a judge.",
    ),
    "evaluate toolorchestra": (
        "lib.tool_orchestration.evaluate_command",
        "ToolOrchestra's pilot study and preference benchmark, on your endpoints and questions.",
    ),
    "router collect": (
        "lib.routers.collect_command",
        "Ask your models your questions, score the replies, keep a table of outcomes.",
    ),
    "router evaluate": (
        "lib.routers.evaluate_command",
        "Whether routing can beat the best constant on your table of outcomes.",
    ),
    "router fit": (
        "lib.routers.fit_command",
        "Fit a router on your table, with a budget that is kept; says what choosing gains.",
    ),
    "router serve": (
        "lib.routers.serve_command",
        "Serve a router to OpenAI clients, in front of your models.",
    ),
    "models serve": (
        "lib.language_models.serving.server",
        "Answer OpenAI clients with the lab models or a folder of your own.",
    ),
    "models retrain": (
        "lib.language_models.training.retrain_check",
        "Train the lab models anew and compare them with the released ones.",
    ),
    "models unpack": (
        "lib.language_models.training.smollm_baseline",
        "Unpack SmolLM2-135M-Instruct to serve it beside the lab models.",
    ),
    "ask": (
        "lib.agent_configuration.ask_command",
        "One question to a team of agents that a trained policy configures.",
    ),
    "tasks make": (
        "lib.tool_orchestration.make_tasks_command",
        "Write office tasks, by a procedure or by a language model.",
    ),
    "replicate": (
        "lib.scoreboard.replicate_command",
        "Run lessons under another root seed and compare.",
    ),
    "full": (
        "lib.reports.full_command",
        "Train every seed and method of a lesson, and keep the results as a table.",
    ),
    "metrics": (
        "lib.scoreboard.lesson_metrics",
        "What the lessons measured, one metric a line.",
    ),
    "readme": (
        "lib.reports.readme",
        "Write the numbers of README.md from reports/metrics.",
    ),
    "course": (
        "lib.teaching.course",
        "The course: eight sessions with minutes, exercises, homework.",
    ),
    "slides": ("lib.teaching.slides", "Offline slides of lessons that ran."),
    "student": ("lib.teaching.student_copies", "Copies of the notebooks for a class."),
    "exercises": (
        "lib.teaching.exercises",
        "Write exercises, quizzes and reading into the notebooks, or print worked solutions.",
    ),
}
EARLIER_OPTIONS = {"--arm": "--variant", "--partings": "--repeats"}  # and what they are called now
GROUPS = {
    "train": "Train a system on your own model and data.",
    "demonstrate": "Train a pretrained model for a few steps, as a lesson shows it.",
    "evaluate": "Evaluate what you trained.",
    "router": "Route between your own models.",
    "models": "Serve, retrain or unpack language models.",
    "tasks": "Make tasks.",
}


def make_app() -> typer.Typer:
    """The application with all commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Decision models that choose which expert acts next: train, evaluate, serve.",
    )
    groups = {}
    for name, help_line in GROUPS.items():
        groups[name] = typer.Typer(no_args_is_help=True, help=help_line)
        app.add_typer(groups[name], name=name)
    for words, (module, help_line) in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        owner = groups[group] if group else app
        is_slow = group in (
            "train",
            "evaluate",
            "demonstrate",
        )  # torch and TRL take seconds to import
        command = make_command(module, is_slow)
        owner.command(name, help=help_line, context_settings=PASS_ON)(command)
    return app


def make_command(module: str, is_slow: bool):
    """A command that hands its arguments to the `main` of a module; a slow one says at once that it begins."""

    def run(context: typer.Context) -> None:
        _refuse_earlier_options(context.args)
        if is_slow and not {"-h", "--help"} & set(context.args):
            typer.echo("reading programs ...")
        raise typer.Exit(import_module(module).main(context.args) or 0)

    return run


def _refuse_earlier_options(arguments: list[str]) -> None:
    """Ends a command that was given an option under an earlier name, and says what it is called now."""
    for argument in arguments:
        option = argument.partition("=")[0]
        if option in EARLIER_OPTIONS:
            typer.echo(f"error: {option} is now called {EARLIER_OPTIONS[option]}", err=True)
            raise typer.Exit(2)


if __name__ == "__main__":
    clear_up_at_signals([signal.SIGTERM])  # temporary folders go too
    make_app()(prog_name="python -m lib")

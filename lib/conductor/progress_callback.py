"""How far a training of transformers is, for the progress line of a sweep."""

from collections.abc import Callable

from transformers import TrainerCallback


class ProgressCallback(TrainerCallback):
    """Reports after every step what fraction of a training is done."""

    def __init__(self, report_progress: Callable[[float], None]) -> None:
        self.report_progress = report_progress

    def on_step_end(self, args, state, control, **kwargs):
        self.report_progress(state.global_step / state.max_steps)

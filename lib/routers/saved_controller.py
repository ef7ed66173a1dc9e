"""A controller that `python -m lib train corl` left in a folder, as far as it is needed to serve it.

    controller = load_controller("runs/first")
    controller.budget_usd_by_label        # {"low": 0.0005, "medium": 0.004, "high": 1000.0}

The folder holds settings.json (prompt, experts, limits of turns), call_costs.json (what a call to each expert costs, as
the prompt names it), start.parquet (what the budget words stand for) and controller (weights and tokenizer). Left out:
how its requests are answered (`controller_service`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib import config
from lib.budgeted_routing import prompts
from lib.config import LLMSettings, ParamsError
from lib.experiment import artifacts
from lib.rl.call_protocol import BUDGET_WORDS
from lib.rl.generators import HFGenerator
from lib.rl.user_training.run_folder import SETTINGS
from lib.rl.user_training.training import CONTROLLER, START_TABLE
from lib.routers.saved_router import RouterError

CALL_COSTS_FILE = "call_costs.json"
WEIGHTS_FOLDER = CONTROLLER


@dataclass(frozen=True)
class SavedController:
    """Settings of a trained CoRL controller: a language model that answers itself or calls expert models.

    Attributes:
        folder: Folder of its weights and tokenizer.
        style: How its prompts name the budget: soft or hard.
        system_prompt: The instructions, which name the experts and their prices.
        budget_usd_by_label: The budget of a request in USD that each label in its prompt (low, medium, high) stands
            for, as the controller was trained.
        cost_by_expert: Mean cost of a call in USD, the cheapest expert first.
        expert_settings: By expert, its settings in the training: model, backend, price_in, price_out, max_tokens.
        max_turns: Largest number of turns of an episode.
        turn_tokens: Largest number of tokens of a turn.
        response_tokens: Largest number of tokens of an expert's reply that the controller reads.
        temperature: Sampling temperature of the controller; 0 is greedy, as in the evaluation of the training.
        expert_temperature: Sampling temperature of the experts.
    """

    folder: Path
    style: str
    system_prompt: str
    budget_usd_by_label: Mapping[str, float]
    cost_by_expert: Mapping[str, float]
    expert_settings: Mapping[str, Mapping[str, Any]]
    max_turns: int
    turn_tokens: int
    response_tokens: int
    temperature: float
    expert_temperature: float

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the experts as the controller writes them, the cheapest first."""
        return tuple(self.cost_by_expert)

    def choose_budget_label(self, budget_usd: float) -> str:
        """Chooses the largest budget that the controller was trained with and that is not above a budget in USD.

        Args:
            budget_usd: The budget of a request.

        Returns:
            Its label, low, medium or high; low where all budgets are above it.
        """
        affordable = []
        for label in BUDGET_WORDS:
            if self.budget_usd_by_label[label] <= budget_usd:
                affordable.append(label)
        return affordable[-1] if affordable else BUDGET_WORDS[0]

    def open_generator(self) -> HFGenerator:
        """Loads the controller's weights, onto a GPU where there is one.

        Returns:
            The model, which generates turns.

        Raises:
            ModelFolderError: The folder holds no model.
        """
        from lib.language_models import hugging_face_folder

        device = hugging_face_folder.choose_device("auto")
        dtype = hugging_face_folder.choose_dtype("auto", device)
        tokenizer, network = hugging_face_folder.load_folder(self.folder, device, dtype)
        return HFGenerator(
            network, tokenizer, self.turn_tokens, self.response_tokens, self.system_prompt
        )


def is_controller_folder(folder: Path) -> bool:
    """Whether a folder was written by a training of CoRL, finished or not."""
    return (folder / SETTINGS).is_file() and (folder / CALL_COSTS_FILE).is_file()


def load_controller(folder: str | Path) -> SavedController:
    """Reads the settings of a controller from the folder of its training.

    Args:
        folder: As `python -m lib train corl --out` wrote it.

    Returns:
        The controller, without its weights.

    Raises:
        RouterError: The training is not finished, or a file is broken.
    """
    folder = Path(folder)
    if not (folder / WEIGHTS_FOLDER / "config.json").is_file():
        raise RouterError(
            f"{folder} holds no trained controller yet: there is no {WEIGHTS_FOLDER}/config.json; run its "
            "`python -m lib train corl` to the end"
        )
    try:
        settings = artifacts.read_json(folder / SETTINGS)
        call_costs = artifacts.read_json(folder / CALL_COSTS_FILE)
        cost_by_expert = {expert: float(cost["cost_usd"]) for expert, cost in call_costs}
        # Every held-out question was answered under every budget before the training.
        start = artifacts.read_parquet(folder / START_TABLE)
        dollars = start.groupby("condition")["budget"].first()
        return SavedController(
            folder=folder / WEIGHTS_FOLDER,
            style=settings["style"],
            system_prompt=prompts.write_system_prompt(settings["prompt"], cost_by_expert),
            budget_usd_by_label={word: float(dollars[word]) for word in BUDGET_WORDS},
            cost_by_expert=cost_by_expert,
            expert_settings={expert: settings["experts"][expert] for expert in cost_by_expert},
            max_turns=int(settings["turns"]),
            turn_tokens=int(settings["turn_tokens"]),
            response_tokens=int(settings["response_tokens"]),
            temperature=float(settings["test_temperature"]),
            expert_temperature=float(settings["expert_temperature"]),
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise RouterError(
            f"{folder} is a broken folder of `python -m lib train corl` ({type(error).__name__}: {reason}); train again"
        ) from error


def add_expert_models(llm: LLMSettings, controller: SavedController) -> LLMSettings:
    """Adds a model to the settings for each expert whose name is not there yet.

    The name by which the controller calls an expert may differ from its name in llm.models (`routing.experts` of
    params.yaml). A model that runs on this machine is then taken from the settings of the training; for an endpoint the
    user has to name the model.

    Args:
        llm: The section llm of the settings, with all models.
        controller: The controller that calls the experts.

    Returns:
        The section llm with a model under the name of each expert.

    Raises:
        ParamsError: An expert is an endpoint that no model is named after.
    """
    common = config.read_params_file()["llm"]["common"]
    added = {}
    for expert, trained in controller.expert_settings.items():
        if expert in llm.models:
            continue
        if trained["backend"] not in ("lab", "hugging_face"):
            raise ParamsError(
                f"the controller calls {expert!r}, and llm.models has no such name; give it (it was "
                f"{trained['model']} in the training) in a file as --model-file"
            )
        added[expert] = {**common, **trained}
    if not added:
        return llm
    expert_llm = LLMSettings(cassette="off", max_usd=0.0, models=added)
    return llm.model_copy(update={"models": llm.models | expert_llm.models})

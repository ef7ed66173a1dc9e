"""A router that was fitted, kept in a folder, and asked where a new prompt should go.

    router = load_router("ROUTER")
    route = router.route([{"role": "user", "content": "What is 3 + 4?"}], budget=0.002)
    route.model, route.expected_accuracy, route.expected_cost_usd

The folder holds router.json (settings, vocabulary, calibrated budgets), router.safetensors (projection and model) and
report.json (what it promises); nothing is pickled. Left out: fitting (`fit_router`) and calling the chosen model
(`router_service`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lib.experiment import artifacts, seeds
from lib.recorded_outcomes.model_selection import CostFrontier
from lib.recorded_outcomes.user_tables import read_prompt_text
from lib.routers import prompt_encoder, success_model
from lib.routers.prompt_encoder import PromptEncoder
from lib.routers.success_model import METHODS, SuccessModel

FORMAT = 1  # of the folder; another number is not read
SETTINGS_FILE, ARRAYS_FILE, REPORT_FILE = "router.json", "router.safetensors", "report.json"


class RouterError(ValueError):
    """A router that cannot be read, or a budget that it cannot keep; the message names the remedy."""


@dataclass(frozen=True)
class OperatingPoint:
    """A setting of the router, with its accuracy and cost on the items on which budgets were calibrated.

    It either weighs success against cost at some rate, or asks one model for every prompt.

    Attributes:
        cost_usd: Mean cost of a prompt in USD.
        accuracy: Mean accuracy.
        rate: Accuracy that one mean cost of a call is worth, see `headroom.choose_at_rates`; None for one model.
        model: The model that is asked for every prompt; None for a rate.
    """

    cost_usd: float
    accuracy: float
    rate: float | None = None
    model: str | None = None


@dataclass(frozen=True)
class Route:
    """The model that was chosen for a prompt.

    Attributes:
        model: The model to ask.
        propensity: The probability with which it was chosen.
        probabilities: By model, the probability of being chosen; they sum to 1.
        success: By model, the predicted probability of a correct answer.
        expected_accuracy: `success` of the chosen model.
        expected_cost_usd: The chosen model's mean cost.
        ranking: All models, the chosen one first, then in the order in which they are asked if it gives no reply.
    """

    model: str
    propensity: float
    probabilities: Mapping[str, float]
    success: Mapping[str, float]
    expected_accuracy: float
    expected_cost_usd: float
    ranking: tuple[str, ...]


@dataclass(frozen=True)
class Router:
    """A fitted router: it predicts how likely each model is correct on a prompt, and chooses within a mean budget.

    Attributes:
        models: Names of the models, in the order of all arrays.
        cost_usd: (models,), mean cost of a prompt in USD.
        encoder: Converts prompts to vectors.
        success: Predicts from a vector the probability of each model of being correct.
        points: Operating points by rising cost: corners of the hull of accuracy over mean cost.
        budget_usd: Budget of calls of `route` that name none: mean cost of a prompt in USD.
        report: Accuracy and cost on held-out items, see `fit_router.make_report`.
    """

    models: tuple[str, ...]
    cost_usd: np.ndarray
    encoder: PromptEncoder
    success: SuccessModel
    points: tuple[OperatingPoint, ...]
    budget_usd: float
    report: Mapping[str, Any] = field(default_factory=dict)

    def route(
        self,
        messages: Sequence[Mapping[str, Any]] | str,
        budget: float | None = None,
        draw: float | None = None,
        explore: float = 0.0,
        features: np.ndarray | None = None,
    ) -> Route:
        """Chooses a model for a prompt.

        A budget between two operating points is kept on average, by choosing one of them at random.

        Args:
            messages: The conversation, as in OpenAI's API, or a text.
            budget: Mean cost of a prompt in USD that is allowed; None for `budget_usd`. A budget below the cheapest
                operating point gets that point.
            draw: A random number in [0, 1) that decides between two operating points; None derives it from the prompt.
            explore: Fraction of prompts for which a uniformly random model is chosen, so that the log can be used to
                estimate other policies.
            features: (d,), the encoded prompt, where it was computed already.

        Returns:
            The chosen model and what is expected of it.

        Raises:
            RouterError: The budget is no number above 0, or `explore` no share.
        """
        budget = self.budget_usd if budget is None else budget
        if not (isinstance(budget, int | float) and 0 < budget < math.inf):
            raise RouterError(
                f"the budget is {budget!r}; give US dollars for a prompt, such as 0.002"
            )
        if not 0 <= explore <= 1:
            raise RouterError(f"explore is {explore!r}; give a share of prompts from 0 to 1")
        prompt = messages if isinstance(messages, str) else read_prompt_text(messages)
        if draw is None:
            digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
            draw = float(seeds.rng("router", "route", digest).random())

        # The mixture of operating points that the budget buys, as probabilities of models.
        if features is None:
            features = self.encoder.encode([prompt])[0]
        chances = self.success.predict(features[None])[0]  # (models,)
        weights = self._frontier.mix_for_cost(budget)
        num_models = len(self.models)
        probabilities = np.full(num_models, explore / num_models)
        for index, weight in weights.items():
            chosen = self._choose(self.points[index], chances)
            probabilities[chosen] += (1 - explore) * weight

        cumulative = np.cumsum(probabilities)
        model = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
        model = min(model, int(np.flatnonzero(probabilities)[-1]))
        main_point = self.points[max(weights, key=weights.get)]
        return Route(
            model=self.models[model],
            propensity=float(probabilities[model]),
            probabilities=dict(zip(self.models, probabilities.tolist(), strict=True)),
            success=dict(zip(self.models, chances.tolist(), strict=True)),
            expected_accuracy=float(chances[model]),
            expected_cost_usd=float(self.cost_usd[model]),
            ranking=self._rank(model, main_point, chances),
        )

    @cached_property
    def _frontier(self) -> CostFrontier:
        return CostFrontier(
            knobs=np.arange(len(self.points)),
            cost_usd=np.array([point.cost_usd for point in self.points]),
            correct=np.array([point.accuracy for point in self.points]),
        )

    def _choose(self, point: OperatingPoint, chances: np.ndarray) -> int:
        """Chooses the index of a model at an operating point, from probabilities of being correct, (models,)."""
        if point.model is not None:
            return self.models.index(point.model)
        return int(self._utilities(point, chances).argmax())

    def _utilities(self, point: OperatingPoint, chances: np.ndarray) -> np.ndarray:
        """Computes the utility of each model, (models,): probability of being correct - rate x cost / mean cost."""
        unit = float(self.cost_usd.mean()) or 1.0
        return chances - (point.rate or 0.0) * self.cost_usd / unit

    def _rank(self, model: int, point: OperatingPoint, chances: np.ndarray) -> tuple[str, ...]:
        """Ranks all models, the chosen one first, then by falling utility."""
        by_utility = np.argsort(-self._utilities(point, chances), kind="stable")
        order = [model, *(int(index) for index in by_utility if index != model)]
        return tuple(self.models[index] for index in order)

    def save(self, folder: str | Path) -> Path:
        """Writes the router to a folder; router.json comes last, so that a folder with it is complete.

        Args:
            folder: The folder.

        Returns:
            The folder.
        """
        folder = Path(folder)
        arrays = {f"encoder.{name}": value for name, value in self.encoder.to_arrays().items()}
        arrays |= {f"success.{name}": value for name, value in self.success.arrays.items()}
        artifacts.write_tensors(folder / ARRAYS_FILE, arrays)
        artifacts.write_json(folder / REPORT_FILE, dict(self.report))
        settings = {
            "format": FORMAT,
            "versions": {"encoder": prompt_encoder.VERSION, "success": success_model.VERSION},
            "method": self.success.method,
            "models": list(self.models),
            "cost_usd": self.cost_usd.tolist(),
            "budget_usd": self.budget_usd,
            "points": [vars(point) for point in self.points],
            "encoder": self.encoder.to_json(),
            "arrays_sha256": artifacts.sha256_file(folder / ARRAYS_FILE),
        }
        artifacts.write_json(folder / SETTINGS_FILE, settings)
        return folder


def load_router(folder: str | Path) -> Router:
    """Reads a router from its folder.

    Args:
        folder: As `python -m lib router fit --out` wrote it.

    Returns:
        The router.

    Raises:
        RouterError: The folder holds no router, or a broken one, or one of another version.
    """
    folder = Path(folder)
    if not (folder / SETTINGS_FILE).is_file():
        raise RouterError(
            f"{folder} holds no {SETTINGS_FILE}; write one with "
            f"`python -m lib router fit TABLE --budget USD --out {folder}`"
        )
    try:
        settings = artifacts.read_json(folder / SETTINGS_FILE)
        if settings["format"] != FORMAT:
            raise RouterError(
                f"{folder / SETTINGS_FILE} has the format {settings['format']!r}, and {FORMAT} is read here; fit the "
                "router again"
            )
        _check_versions(folder, settings["versions"])
        # The two files are written one after the other; after a kill between them they may belong to different fits.
        if artifacts.sha256_file(folder / ARRAYS_FILE) != settings["arrays_sha256"]:
            raise RouterError(
                f"{folder / ARRAYS_FILE} is not the file that {SETTINGS_FILE} was written with; fit the router again"
            )
        arrays = artifacts.read_tensors(folder / ARRAYS_FILE)
        report = artifacts.read_json(folder / REPORT_FILE)
        return Router(
            models=tuple(settings["models"]),
            cost_usd=np.array(settings["cost_usd"], dtype=float),
            encoder=prompt_encoder.restore_encoder(
                settings["encoder"], _strip_prefix(arrays, "encoder.")
            ),
            success=METHODS[settings["method"]](_strip_prefix(arrays, "success.")),
            points=tuple(OperatingPoint(**point) for point in settings["points"]),
            budget_usd=float(settings["budget_usd"]),
            report=report,
        )
    except RouterError:
        raise
    except (KeyError, TypeError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise RouterError(
            f"{folder} is a broken router ({type(error).__name__}: {reason}); fit it again"
        ) from error


def _check_versions(folder: Path, versions: Mapping[str, int]) -> None:
    """Checks that the code still computes the same numbers from saved arrays as when the router was fitted.

    Args:
        folder: Folder of the router, for the message.
        versions: VERSION of encoder and success model at that time.

    Raises:
        RouterError: A version differs.
    """
    current = {"encoder": prompt_encoder.VERSION, "success": success_model.VERSION}
    for name, version in current.items():
        if versions.get(name) != version:
            raise RouterError(
                f"{folder} was fitted with version {versions.get(name)} of its {name}, and this is {version}; fit the "
                "router again"
            )


def _strip_prefix(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Selects the arrays whose names begin with a prefix, and removes it from their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }

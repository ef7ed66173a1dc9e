"""`params.yaml` as a whole: read, resolved for a profile, checked, and changed by a command or a notebook."""

import copy
import os
from collections.abc import Sequence
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent

from lib.config.agent_configuration import ConfigurationSettings
from lib.config.budgeted_routing import RoutingSettings, ToolSettings
from lib.config.conductor import ConductorSettings
from lib.config.llm import LabSettings, LLMSettings
from lib.config.policy_zoo import OrchestrationSettings, TourSettings, ZooParams
from lib.config.recorded_outcomes import AblationSettings, RecordedSettings
from lib.config.types import PROFILES, ROOT, ParamsError, Section

# Parameters that were renamed: path of the earlier name (`*` is any model), and the name that is in its place now.
EARLIER_NAMES = {
    "lab.alike_items": "retrain_check_items",
    "lab.live": "demo_model",
    "lab.live_steps": "demo_steps",
    "lab.models.*.diet": "data_mixture",
    "llm.max_dollars": "max_usd",
    "orchestration.copies": "rollout_copies",
    "orchestration.sparing": "decision_intervals",
    "orchestration.depths": "lookahead_depths",
    "orchestration.margin": "equivalence_margin",
    "orchestration.ours": "custom_environments",
    "conductor.margin": "equivalence_margin",
    "conductor.apart": "single_category",
    "conductor.side_seeds": "ablation_seeds",
    "routing.other_seeds": "ablation_seeds",
    "routing.margin": "equivalence_margin",
    "routing.unit": "budget_unit_usd",
    "routing.high": "high_budget_usd",
    "routing.numbers": "numeric_budgets",
    "routing.glass.alone": "self_accuracy",
    "routing.glass.reach": "specialist_advantage",
    "routing.glass.jitter": "accuracy_noise",
    "routing.glass.tells": "reply_signal_accuracy",
    "tools.warm.lean": "preference_bias",
    "tools.glass.blur": "observation_noise",
    "configuration.glass.looks": "eval_points",
    "configuration.glass.blur": "observation_noise",
    "configuration.glass.dice": "num_samples",
    "recorded.ahead": "min_dev_gain",
    "recorded.margin": "equivalence_margin",
}


class Params(ZooParams):
    """Everything in `params.yaml`, resolved for one profile."""

    profile: Literal["smoke", "laptop", "paper"]
    tour: TourSettings
    lab: LabSettings
    llm: LLMSettings
    orchestration: OrchestrationSettings
    conductor: ConductorSettings
    routing: RoutingSettings
    tools: ToolSettings
    configuration: ConfigurationSettings
    recorded: RecordedSettings
    ablations: AblationSettings

    @model_validator(mode="after")
    def _models_exist(self):
        named = {"orchestration": [*self.orchestration.models, self.orchestration.judge]}
        named["conductor"] = [self.conductor.judge]
        named["routing.experts"] = list(self.routing.experts.values())
        named["tools"] = [*self.tools.models.values(), self.tools.agent]
        asked = self.configuration
        named["configuration"] = [asked.model, asked.larger, asked.prompted]
        named["ablations"] = [self.ablations.model]
        for section, names in named.items():
            unknown = sorted(set(names) - set(self.llm.models))
            if unknown:
                raise ValueError(
                    f"{section} names the models {unknown}; llm.models has {sorted(self.llm.models)}"
                )
        bases = {
            "conductor.policy": self.conductor.policy,
            "routing.base": self.routing.base,
            "tools.base": self.tools.base,
        }
        for key, name in bases.items():
            if name not in self.lab.models:
                raise ValueError(f"{key} is {name!r}; lab.models has {sorted(self.lab.models)}")
        return self


def read(path: str | Path = ROOT / "params.yaml") -> dict[str, Any]:
    """The file as plain Python values. YAML 1.2: `1e-4` is a number and `no` a word."""
    path = Path(path)
    if not path.exists():
        raise ParamsError(f"{path} is missing; restore it with `git checkout {path.name}`")
    try:
        content = copy.deepcopy(_parsed(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path} is not UTF-8 text: {error}") from error
    except ValueError as error:
        raise ParamsError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ParamsError(f"{path} must hold sections such as `zoo:`, got {type(content).__name__}")
    return content


class _Plain(Composer):
    """Composes a document without aliases: a few lines of them may stand for more than any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise ComposerError(
                None,
                None,
                "an alias, which nothing here needs",
                self.parser.peek_event().start_mark,
            )
        return super().compose_node(parent, index)


def from_yaml(text: str) -> Any:
    """A YAML document as plain Python values. Raises ValueError that says where it is none; it repeats no line of
    the document, in which a secret may stand."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Plain
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = str(error.problem or error.context).partition(" with value")[0]
        why += f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    except RecursionError:
        why = "it is nested too deep"
    except (YAMLError, ValueError, ArithmeticError) as error:
        why = f"a value cannot be read ({type(error).__name__})"
    raise ValueError(why)  # out here nothing is chained to it


_parsed = lru_cache(maxsize=2)(
    from_yaml
)  # a third of a second for this file, which is read again and again


def resolve(content: Any, profile: str, path: str = "") -> Any:
    """Replace every {smoke, laptop, paper} mapping by the value of `profile`."""
    if not isinstance(content, dict):
        return content
    present = set(content) & set(PROFILES)
    if present and set(content) != set(PROFILES):
        raise ParamsError(
            f"{path or 'params'}: a knob that scales needs exactly the keys {', '.join(PROFILES)}; "
            f"got {', '.join(map(str, content))}"
        )
    if present:
        return content[profile]
    return {
        key: resolve(value, profile, f"{path}.{key}".lstrip(".")) for key, value in content.items()
    }


def _explain(error: ValidationError, profile: str) -> ParamsError:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"]) or "params"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{key}: unknown key; remove it or correct its spelling")
        elif problem["type"] == "missing":
            lines.append(f"{key}: missing; every knob must be given")
        elif problem["loc"][-1:] == ("[key]",):
            rule = "has letters, digits, _ + - and single dots; an endpoint's own, as org/model:4, stands in `model`"
            lines.append(f"{key.removesuffix('.[key]')}: a name {rule}")
        else:
            shown = (
                not isinstance(problem["input"], dict) and "models" not in problem["loc"]
            )  # by mistake a secret
            lines.append(
                f"{key}: {problem['msg']}" + (f", got {problem['input']!r}" if shown else "")
            )
    told = lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
    return ParamsError(f"params.yaml (profile {profile}): {told}")


def refuse_earlier_names(content: Any) -> None:
    """Raise ParamsError where sections, by name, hold a parameter under an earlier name; it names the new one."""
    renamed = []
    for pattern, new in EARLIER_NAMES.items():
        found: list[tuple[tuple[str, ...], Any]] = [((), content)]
        for key in pattern.split("."):
            found = [
                ((*path, str(name)), value)
                for path, mapping in found
                if isinstance(mapping, dict)
                for name, value in mapping.items()
                if key in ("*", name)
            ]
        for path, _ in found:
            renamed.append(f"{'.'.join(path)} is now called {'.'.join((*path[:-1], new))}")
    if renamed:
        raise ParamsError(f"params.yaml: {'; '.join(renamed)}")


def validate(content: dict[str, Any], model: type[Section] = Params, where: str = "") -> Any:
    """`content` as a typed section. Raises ParamsError naming each wrong key, its value and the rule."""
    if model is Params:
        refuse_earlier_names(content)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        told = _explain(error, where or str(content.get("profile", "?")))
    raise told  # out here nothing is chained to it: pydantic's error holds all values


def load(profile: str | None = None, path: str | Path = ROOT / "params.yaml") -> Params:
    """The parameters of one profile; all three are checked, so that no mistake waits for later.

    profile: None takes the environment's PROFILE, then the file's `profile`.
    """
    content = read(path)
    chosen = profile or os.environ.get("PROFILE") or content.get("profile")
    if chosen not in PROFILES:
        raise ParamsError(f"profile: must be one of {', '.join(PROFILES)}, got {chosen!r}")
    checked = {name: validate({**resolve(content, name), "profile": name}) for name in PROFILES}
    return checked[chosen]


def changed(section: str, content: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """A copy of a section's content with `key.key=value` changes, as a command line gives them.

    Values are YAML; the result is not validated yet. Raises ParamsError for a key that there is not, or a value
    that cannot be read.
    """
    out = copy.deepcopy(content)
    for change in changes:
        key, sign, value = change.partition("=")
        *rooms, last = key.split(".")
        place: Any = out
        for room in rooms:
            place = place.get(room) if isinstance(place, dict) else None
        if not sign or not isinstance(place, dict) or last not in place:
            refuse_earlier_names(
                reduce(lambda inner, name: {name: inner}, (last, *reversed(rooms), section), None)
            )
            raise ParamsError(
                f"--set {key}: write KEY=VALUE with a key of `{section}` in params.yaml"
            )
        try:
            place[last] = from_yaml(value)
        except ValueError as error:
            raise ParamsError(f"--set {key}: the value is not valid YAML: {error}") from None
    return out


def settings(**sections: dict[str, Any] | None) -> Params:
    """The parameters that a notebook works with.

    Each argument is a section as the runner hands it over, or None to take it from `params.yaml`; a
    partial mapping such as zoo={"seeds": 1} changes only what it names.
    """
    profile = sections.pop("profile", None)
    base = load(profile).model_dump()
    known = set(base) - {"profile"}
    if set(sections) - known:
        raise ParamsError(
            f"unknown section {sorted(set(sections) - known)}; there are {sorted(known)}"
        )
    for name, section in sections.items():
        base[name] = overlay(base[name], section or {})
    return validate(base, where=f"{base['profile']}, with the notebook's changes")


def overlay(base: Any, change: Any) -> Any:
    """`base` with what a partial mapping changes in it."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return base | {key: overlay(base.get(key), value) for key, value in change.items()}

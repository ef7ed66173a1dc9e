"""`params.yaml` as a whole: read, resolved for a profile, checked, and changed by a command or a notebook."""

import copy
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent

from lib.config.agent_configuration import ConfigurationSettings
from lib.config.budgeted_routing import (
    EXPERT_WORDS,
    RoutingSettings,
    ToolSettings,
)
from lib.config.conductor import ConductorSettings
from lib.config.llm import LabSettings, LLMSettings
from lib.config.policy_zoo import OrchestrationSettings, TourSettings, ZooParams
from lib.config.recorded_outcomes import AblationSettings, RecordedSettings
from lib.config.types import PROFILES, REQUIRED_PROFILES, ROOT, ParamsError, Section

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
    "orchestration.ours": "varied",
    "orchestration.custom_environments": "varied",
    "conductor.margin": "equivalence_margin",
    "conductor.side_seeds": "ablation_seeds",
    "conductor.start": "initial_policy",
    "conductor.glass": "synthetic",
    "conductor.head.sees": "head_input",
    "conductor.head.every": "update_interval",
    "conductor.head.verified": "verified_fraction",
    "conductor.head.errs": "verifier_error_rate",
    "conductor.rewards.think": "require_thought",
    "conductor.rewards.shortest": "min_length",
    "conductor.rewards.longest": "max_length",
    "conductor.preference.mistakes": "annotator_error_rate",
    "routing.other_seeds": "ablation_seeds",
    "routing.margin": "equivalence_margin",
    "routing.unit": "budget_unit_usd",
    "routing.high": "high_budget_usd",
    "routing.numbers": "numeric_budgets",
    "routing.glass": "synthetic",
    "tools.glass": "synthetic",
    "tools.synthetic.careless": "malformed_probability",
    "tools.synthetic.careless_updates": "malformed_updates",
    "configuration.glass.looks": "eval_points",
    "configuration.glass.blur": "observation_noise",
    "configuration.glass.dice": "num_samples",
    "recorded.ahead": "min_dev_gain",
    "recorded.margin": "equivalence_margin",
}


LAB_ORCHESTRATOR = "lab-orchestrator"  # the small model that decides in lesson 02


class Params(ZooParams):
    """Everything in `params.yaml`, resolved for one profile."""

    profile: Literal["smoke", "laptop", "full", "paper"]
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

    @property
    def models_by_section(self) -> dict[str, list[str]]:
        """Lists the names of llm.models that each section of the settings refers to.

        Returns:
            {section: names of models}.
        """
        orchestration, configuration = self.orchestration, self.configuration
        # The small model of the lab stands in no list of models; anything else must.
        deciding = [name for name in [orchestration.model] if name != LAB_ORCHESTRATOR]
        return {
            "orchestration": [*deciding, *orchestration.prompted, orchestration.judge],
            "conductor": [self.conductor.judge],
            "routing": [*self.routing.experts.values(), *self.routing.ladder.experts.values()],
            "tools": [
                *self.tools.models.values(),
                self.tools.agent,
                *self.tools.optional_models,
                *self.tools.lab_world.models,
            ],
            "configuration": [configuration.model, configuration.larger, configuration.prompted],
            "ablations": [self.ablations.model],
        }

    def select_models(self, *sections: str) -> dict[str, Any]:
        """Selects the models in section llm that some sections name.

        A lesson depends on these, so that another line under llm.models leaves it up to date.

        Args:
            sections: Their names; others than those of `models_by_section` name no model.

        Returns:
            The section as plain values.
        """
        names = {name for section in sections for name in self.models_by_section.get(section, [])}
        llm = self.llm.model_dump()
        models = {name: model for name, model in llm["models"].items() if name in names}
        return llm | {"models": models}

    def show(self, *sections: str) -> dict[str, Any]:
        """Selects sections of the settings as plain values, for display.

        Args:
            sections: Their names; of llm only the models are shown that the others name.

        Returns:
            The sections as plain values, by name.
        """
        content = {name: getattr(self, name).model_dump() for name in sections}
        if "llm" in content:
            content["llm"] = self.select_models(*sections)
        return content

    @model_validator(mode="after")
    def _check_models_exist(self):
        """Checks that every model that a section names has settings.

        Raises:
            ValueError: One has none.
        """
        for section, names in self.models_by_section.items():
            unknown = sorted(set(names) - set(self.llm.models))
            if unknown:
                raise ValueError(
                    f"{section} names the models {unknown}; llm.models has {sorted(self.llm.models)}"
                )

        # Every lab model that a section trains further.
        bases = {
            "conductor.policy": self.conductor.policy,
            "routing.base": self.routing.base,
            "tools.lab_world.base": self.tools.lab_world.base,
        }
        for key, name in bases.items():
            if name not in self.lab.models:
                raise ValueError(f"{key} is {name!r}; lab.models has {sorted(self.lab.models)}")
        return self

    @model_validator(mode="after")
    def _check_expert_words(self):
        """Checks that a small controller can write the names by which it calls experts.

        Its vocabulary is closed: it can only write the words in EXPERT_WORDS, each of which may stand for any model.

        Raises:
            ValueError: A name is none of these words.
        """
        words_by_key = {
            "routing.experts": (self.routing.experts, EXPERT_WORDS),
            "routing.ladder.experts": (self.routing.ladder.experts, EXPERT_WORDS),
        }
        for key, (model_names, words) in words_by_key.items():
            for word, name in model_names.items():
                if word not in words:
                    raise ValueError(
                        f"{key} calls the model {name!r} by the word {word!r}, which a lab controller cannot write; "
                        f"let one of its words ({', '.join(words)}) stand for the model, "
                        f"such as {{{EXPERT_WORDS[-1]}: {name}}}"
                    )
        return self


def read_params_file(path: str | Path = ROOT / "params.yaml") -> dict[str, Any]:
    """Reads params.yaml as plain Python values, by YAML 1.2: `1e-4` is a number and `no` a word.

    Args:
        path: The file.

    Returns:
        Settings by section.

    Raises:
        ParamsError: The file is missing, not UTF-8, not YAML or no mapping.
    """
    path = Path(path)
    if not path.exists():
        raise ParamsError(f"{path} is missing; restore it with `git checkout {path.name}`")
    try:
        content = copy.deepcopy(_parse_yaml_cached(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path} is not UTF-8 text: {error}") from error
    except ValueError as error:
        raise ParamsError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ParamsError(f"{path} must hold sections such as `zoo:`, got {type(content).__name__}")
    return content


class _NoAliasComposer(Composer):
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
    """Parses a YAML document into plain Python values.

    Args:
        text: The document.

    Raises:
        ValueError: It is no YAML. The message says where, and repeats no line, in which a secret may stand.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _NoAliasComposer
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = str(error.problem or error.context).partition(" with value")[0]
        if mark:
            reason += f" in line {mark.line + 1}, column {mark.column + 1}"
    except RecursionError:
        reason = "it is nested too deep"
    except (YAMLError, ValueError, ArithmeticError) as error:
        reason = f"a value cannot be read ({type(error).__name__})"
    # Raised outside of the handlers, so that no error with the document's text is chained to it.
    raise ValueError(reason)


# Parsing takes a third of a second for this file, which is read again and again.
_parse_yaml_cached = lru_cache(maxsize=2)(from_yaml)


def resolve_profile(content: Any, profile: str, path: str = "") -> Any:
    """Replaces every {smoke, laptop, paper} mapping by the value of one profile.

    A mapping may have a value for `full` too; without one, `full` has the value of laptop.

    Args:
        content: The file, or something inside it.
        profile: Which value to take.
        path: Where `content` stands in the file, for error messages.

    Raises:
        ParamsError: A mapping has some of the profiles, or other keys besides.
    """
    if not isinstance(content, dict):
        return content
    present = set(content) & set(PROFILES)
    if present and set(content) - {"full"} != set(REQUIRED_PROFILES):
        raise ParamsError(
            f"{path or 'params'}: a knob that scales needs exactly the keys {', '.join(REQUIRED_PROFILES)}, "
            f"and full where recorded runs are larger; got {', '.join(map(str, content))}"
        )
    if present:
        return (
            content["laptop"] if profile == "full" and "full" not in content else content[profile]
        )
    return {
        key: resolve_profile(value, profile, f"{path}.{key}".lstrip("."))
        for key, value in content.items()
    }


def _explain_error(error: ValidationError, profile: str) -> ParamsError:
    """Converts a validation error of pydantic to a message with a line per mistake: key, reason and value.

    Args:
        error: The error.
        profile: The profile whose settings were validated.
    """
    lines = []
    for problem in error.errors():
        key = ".".join(str(component) for component in problem["loc"]) or "params"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{key}: unknown key; remove it or correct its spelling")
        elif problem["type"] == "missing":
            lines.append(f"{key}: missing; every knob must be given")
        elif problem["loc"][-1:] == ("[key]",):
            rule = "has letters, digits, _ + - and single dots; an endpoint's own, as org/model:4, stands in `model`"
            lines.append(f"{key.removesuffix('.[key]')}: a name {rule}")
        else:
            # What stands under `models` may be a secret, by mistake.
            is_printable = not isinstance(problem["input"], dict) and "models" not in problem["loc"]
            suffix = f", got {problem['input']!r}" if is_printable else ""
            lines.append(f"{key}: {problem['msg']}{suffix}")
    explanation = lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
    return ParamsError(f"params.yaml (profile {profile}): {explanation}")


def refuse_earlier_names(content: Any) -> None:
    """Refuses parameters under an earlier name.

    Args:
        content: Sections by name.

    Raises:
        ParamsError: There is such a parameter. The message has its new name.
    """
    messages = []
    for pattern, new_name in EARLIER_NAMES.items():
        for path in _find_paths(content, pattern.split(".")):
            old_path = ".".join(path)
            new_path = ".".join([*path[:-1], new_name])
            messages.append(f"{old_path} is now called {new_path}")
    if messages:
        raise ParamsError(f"params.yaml: {'; '.join(messages)}")


def _find_paths(content: Any, pattern: Sequence[str]) -> list[tuple[str, ...]]:
    """Finds the paths in nested dictionaries that match a pattern.

    Args:
        content: Nested dictionaries.
        pattern: Keys from the top down, in which `*` is any key.

    Returns:
        Every path as a tuple of keys.
    """
    if not pattern:
        return [()]
    if not isinstance(content, dict):
        return []
    paths = []
    for name, value in content.items():
        if pattern[0] in ("*", name):
            for inner_path in _find_paths(value, pattern[1:]):
                paths.append((str(name), *inner_path))
    return paths


def validate_settings(
    content: dict[str, Any], model: type[Section] = Params, source: str = ""
) -> Any:
    """Checks plain values and makes a typed section of them.

    Args:
        content: The values.
        model: The section's class.
        source: What the error names as their origin; the profile by default.

    Raises:
        ParamsError: The message names each wrong key, its value and the rule.
    """
    if model is Params:
        refuse_earlier_names(content)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        params_error = _explain_error(error, source or str(content.get("profile", "?")))
    # Raised outside of the handler: pydantic's error, which holds all values, must not be chained to it.
    raise params_error


def load(profile: str | None = None, path: str | Path = ROOT / "params.yaml") -> Params:
    """Loads the parameters of one profile.

    Args:
        profile: None takes the environment's PROFILE, then the file's `profile`.
        path: The file.

    Raises:
        ParamsError: A mistake in the file, in whichever profile.
    """
    content = read_params_file(path)
    profile = profile or os.environ.get("PROFILE") or content.get("profile")
    if profile not in PROFILES:
        raise ParamsError(f"profile: must be one of {', '.join(PROFILES)}, got {profile!r}")

    # All profiles are checked, so that no mistake waits for later.
    params_by_profile = {}
    for name in PROFILES:
        params_by_profile[name] = validate_settings(
            {**resolve_profile(content, name), "profile": name}
        )
    return params_by_profile[profile]


def apply_changes(section: str, content: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Applies changes of a command line to a section.

    Args:
        section: Its name.
        content: Its values, which stay as they are.
        changes: `key.key=value` each, where the value is YAML.

    Returns:
        A changed copy, which is not validated yet.

    Raises:
        ParamsError: There is no such key, or a value cannot be read.
    """
    changed_content = copy.deepcopy(content)
    for change in changes:
        key, equals_sign, value = change.partition("=")
        *outer_keys, last_key = key.split(".")

        # Walk to the mapping that holds the last key.
        mapping: Any = changed_content
        for outer_key in outer_keys:
            mapping = mapping.get(outer_key) if isinstance(mapping, dict) else None

        if not equals_sign or not isinstance(mapping, dict) or last_key not in mapping:
            # An earlier name gets an error with the new one: nest the keys as in the file to look them up.
            nested = None
            for name in (last_key, *reversed(outer_keys), section):
                nested = {name: nested}
            refuse_earlier_names(nested)
            raise ParamsError(
                f"--set {key}: write KEY=VALUE with a key of `{section}` in params.yaml"
            )
        try:
            mapping[last_key] = from_yaml(value)
        except ValueError as error:
            raise ParamsError(f"--set {key}: the value is not valid YAML: {error}") from None
    return changed_content


def settings(**sections: dict[str, Any] | None) -> Params:
    """Builds the parameters of a notebook: params.yaml with the sections that the notebook changes.

    Args:
        sections: By name, a section as the runner passes it, or None to take it from `params.yaml`; a partial mapping
            such as zoo={"seeds": 1} changes only what it names. `profile` is one of the names.

    Raises:
        ParamsError: A section is unknown, or a value is not allowed.
    """
    profile = sections.pop("profile", None)
    base = load(profile).model_dump()
    section_names = set(base) - {"profile"}
    unknown = sorted(set(sections) - section_names)
    if unknown:
        raise ParamsError(f"unknown section {unknown}; there are {sorted(section_names)}")
    for name, section in sections.items():
        base[name] = overlay_settings(base[name], section or {})
    return validate_settings(base, source=f"{base['profile']}, with the notebook's changes")


def overlay_settings(base: Any, change: Any) -> Any:
    """`base` with what a partial mapping changes in it."""
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    changed_values = {key: overlay_settings(base.get(key), value) for key, value in change.items()}
    return base | changed_values

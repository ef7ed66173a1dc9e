"""`params.yaml` as typed settings: units and bounds, and no silent mistakes.

A knob that scales is a mapping {smoke, laptop, paper}; `resolve` picks the value of one profile. An
unknown key, a wrong type or a value out of range stops the run with the key's path and what is
allowed. `python -m lib.params` writes the resolved values of the chosen profile to a JSON file: the
pipeline's stages depend on that file, so a change for one profile leaves the others up to date.
"""

from lib.params.conductor import (
    ConductorSettings,
    GlassMaps,
    GlassSettings,
    GRPOSettings,
    HeadSettings,
    PreferenceSettings,
    RewardSettings,
    StartSettings,
)
from lib.params.configuration import (
    ConfigurationGlassSettings,
    ConfigurationReward,
    ConfigurationSettings,
    GradientSettings,
    RefineSettings,
)
from lib.params.fields import PROFILES, ROOT, ParamsError
from lib.params.language import Course, LabModel, LabSettings, LLMSettings, ModelSettings, Target
from lib.params.policies import (
    BanditSettings,
    CeilingSettings,
    EducationSettings,
    EducationZoo,
    Environments,
    MinigridSettings,
    MinigridZoo,
    OrchestrationSettings,
    OursSettings,
    PPOSettings,
    TourSettings,
    ZooParams,
    ZooSettings,
)
from lib.params.reports import AblationSettings, PriceSettings, RecordedSettings
from lib.params.routing import (
    LeaningSettings,
    LearnSettings,
    RoutingGlassSettings,
    RoutingSettings,
    ToolGlassSettings,
    ToolSettings,
    WarmSettings,
)
from lib.params.whole import Params, changed, from_yaml, load, overlay, read, resolve, settings, validate

__all__ = [
    "PROFILES",
    "ROOT",
    "AblationSettings",
    "BanditSettings",
    "CeilingSettings",
    "ConductorSettings",
    "ConfigurationGlassSettings",
    "ConfigurationReward",
    "ConfigurationSettings",
    "Course",
    "EducationSettings",
    "EducationZoo",
    "Environments",
    "GRPOSettings",
    "GlassMaps",
    "GlassSettings",
    "GradientSettings",
    "HeadSettings",
    "LLMSettings",
    "LabModel",
    "LabSettings",
    "LeaningSettings",
    "LearnSettings",
    "MinigridSettings",
    "MinigridZoo",
    "ModelSettings",
    "OrchestrationSettings",
    "OursSettings",
    "PPOSettings",
    "Params",
    "ParamsError",
    "PreferenceSettings",
    "PriceSettings",
    "RecordedSettings",
    "RefineSettings",
    "RewardSettings",
    "RoutingGlassSettings",
    "RoutingSettings",
    "StartSettings",
    "Target",
    "ToolGlassSettings",
    "ToolSettings",
    "TourSettings",
    "WarmSettings",
    "ZooParams",
    "ZooSettings",
    "changed",
    "from_yaml",
    "load",
    "overlay",
    "read",
    "resolve",
    "settings",
    "validate",
]

"""`params.yaml` as typed settings: units and bounds, and no silent mistakes.

A knob that scales is a mapping {smoke, laptop, paper}; `resolve` picks the value of one profile. An
unknown key, a wrong type or a value out of range stops the run with the key's path and what is
allowed. `python -m lib.params` writes the resolved values of the chosen profile to a JSON file: the
pipeline's stages depend on that file, so a change for one profile leaves the others up to date.
"""

from lib.params.conductor import (
    ConductorSettings,
    GlassSettings,
    GRPOSettings,
    HeadSettings,
    PreferenceSettings,
    RewardSettings,
    StartSettings,
)
from lib.params.configuration import ConfigurationGlassSettings, ConfigurationSettings
from lib.params.fields import PROFILES, ROOT, ParamsError
from lib.params.language import Course, LabModel, LabSettings, LLMSettings, ModelSettings, Target
from lib.params.policies import EducationSettings, Environments, OrchestrationSettings, PPOSettings, ZooParams
from lib.params.reports import RecordedSettings
from lib.params.routing import (
    LearnSettings,
    RoutingGlassSettings,
    RoutingSettings,
    ToolGlassSettings,
    ToolSettings,
    WarmSettings,
)
from lib.params.whole import Params, changed, from_yaml, load, overlay, read, resolve, settings, validate

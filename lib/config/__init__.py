"""`params.yaml` as typed settings: units and bounds, and no silent mistakes.

A knob that scales is a mapping {smoke, laptop, paper}, with `full` where recorded runs are larger;
`resolve_profile` picks the value of one profile. An unknown key, an earlier name, a wrong type or a value out
of range stops the run with the key's path and what is allowed. `python -m lib.experiment.write_settings`
writes the resolved values of the chosen profile to a JSON file: the pipeline's stages depend on that file, so
a change for one profile leaves the others up to date.
"""

from lib.config.agent_configuration import ConfigurationGlassSettings, ConfigurationSettings
from lib.config.budgeted_routing import (
    LearnSettings,
    RoutingRecordedSettings,
    RoutingSettings,
    RoutingSyntheticSettings,
    ToolSettings,
    ToolSyntheticSettings,
    WarmSettings,
)
from lib.config.conductor import (
    ConductorSettings,
    ConductorSyntheticSettings,
    GRPOSettings,
    HeadSettings,
    InitialPolicySettings,
    PreferenceSettings,
    RewardSettings,
)
from lib.config.llm import (
    LabModelSettings,
    LabSettings,
    LLMSettings,
    MixtureComponent,
    ModelSettings,
    Target,
)
from lib.config.load import (
    Params,
    apply_changes,
    from_yaml,
    load,
    overlay_settings,
    read_params_file,
    resolve_profile,
    settings,
    validate_settings,
)
from lib.config.policy_zoo import (
    EducationSettings,
    Environments,
    OrchestrationSettings,
    PPOSettings,
    ZooParams,
)
from lib.config.recorded_outcomes import PriceSettings, RecordedSettings
from lib.config.types import PROFILES, ROOT, ParamsError

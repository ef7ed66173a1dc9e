"""A trained policy in a folder, and back: weights as safetensors, everything else as JSON.

    save_policies(folder, policies, description, encoder)
    saved = SavedPolicies.load(folder)
    (configuration,) = saved.choose(["What is 12 * 37?"])

Left out: agents, tools and documents, which a configuration only names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib.agent_configuration import encoders
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.atoms import Atom
from lib.agent_configuration.training import ConfigurationPolicy
from lib.config import ParamsError
from lib.experiment import artifacts
from lib.language_models import checkpoints

VERSION = 1  # of the files
DESCRIPTION = "policy.json"


@dataclass(frozen=True)
class PolicyDescription:
    """What a policy reads and chooses from.

    Attributes:
        kind: One of `variants.POLICY_KINDS`.
        inputs: Length of the state of a question.
        atoms: The library.
        tools: The tools that agents may be given.
        tiers: Tokens of the budgets, a row for each agent.
        encoder: Name of the encoder.
        model: Name of the agents' model in the settings.
    """

    kind: str
    inputs: int
    atoms: Sequence[Atom]
    tools: tuple[str, ...]
    tiers: Sequence[Sequence[int]]
    encoder: str
    model: str

    def make_policy(self, seed: int = 0) -> ConfigurationPolicy:
        """Make a policy with random weights."""
        return ConfigurationPolicy(self.kind, self.inputs, self.atoms, seed=seed, tools=self.tools)


@dataclass(frozen=True)
class SavedPolicies:
    """Policies that were read from a folder.

    Attributes:
        policies: By group of questions; "" for one policy for all.
        description: What they read and choose from.
        encode: Their encoder.
    """

    policies: Mapping[str, ConfigurationPolicy]
    description: PolicyDescription
    encode: encoders.Encoder

    @classmethod
    def load(cls, folder: str | Path, models: str | Path = checkpoints.MODELS) -> SavedPolicies:
        """Read a folder.

        Args:
            folder: A folder that `save_policies` wrote.
            models: Folder of the lab models, which an encoder may need.

        Returns:
            The policies.

        Raises:
            ParamsError: There is no policy in it, or one in an earlier form.
            EncoderError: Its encoder is not here.
        """
        path = Path(folder) / DESCRIPTION
        if not path.is_file():
            raise ParamsError(f"{folder} holds no policy: there is no {DESCRIPTION} in it")
        content = artifacts.read_json(path)
        if content.pop("version") != VERSION:
            raise ParamsError(f"{path} was written by another version; train the policy again")
        files = content.pop("policies")
        words = content.pop("word_weights")
        # JSON has lists of dictionaries; the description holds atoms, and tuples that can be compared.
        content["atoms"] = [Atom.model_validate(atom) for atom in content["atoms"]]
        content["tools"] = tuple(content["tools"])
        description = PolicyDescription(**content)
        encode = (
            encoders.make_weighted_encoder(words)
            if words
            else encoders.make_encoder(description.encoder, models)
        )
        policies = {}
        for group, name in files.items():
            weights = artifacts.read_tensors(Path(folder) / name)
            policies[group] = description.make_policy().load_arrays(weights)
        return cls(policies, description, encode)

    def choose(self, questions: Sequence[str], group: str = "") -> list[Configuration]:
        """Choose the likeliest configuration for each question.

        Args:
            questions: Texts of the questions.
            group: The group of questions whose policy chooses, where there are several.

        Returns:
            A configuration for each question.

        Raises:
            ParamsError: There is no policy for the group.
        """
        if group not in self.policies:
            groups = ", ".join(map(repr, self.policies))
            raise ParamsError(f"there is no policy for the group {group!r}; there are {groups}")
        states = encoders.make_states(questions, self.encode)
        return self.policies[group].decide(torch.from_numpy(states)).configurations


def save_policies(
    folder: Path,
    policies: Mapping[str, ConfigurationPolicy],
    description: PolicyDescription,
    encode: encoders.Encoder,
) -> None:
    """Write policies to a folder.

    Args:
        folder: Made if it is not there.
        policies: By group of questions; "" for one policy for all.
        description: What they read and choose from.
        encode: Their encoder; the words of tf-idf and their weights are written too.
    """
    files = {}
    for number, (group, policy) in enumerate(policies.items()):
        files[group] = f"policy-{number}.safetensors"
        artifacts.write_tensors(folder / files[group], policy.to_arrays())
    content: dict[str, Any] = {
        "version": VERSION,
        "policies": files,
        "kind": description.kind,
        "inputs": description.inputs,
        "atoms": [atom.model_dump() for atom in description.atoms],
        "tools": list(description.tools),
        "tiers": [list(row) for row in description.tiers],
        "encoder": description.encoder,
        "model": description.model,
        "word_weights": encoders.list_word_weights(encode),
    }
    artifacts.write_json(folder / DESCRIPTION, content)

"""The language model that a trainer trains, and its reference: any causal model in the Hugging Face format.

Weights in float32, or computed in bfloat16 with weights and optimiser in float32; all weights trained, or LoRA
adapters on frozen ones. Dropout is off in both passes, and log-probabilities are those of plain sampling from the
softmax at the setting's temperature. Only the policy's tokens are scored, in chunks, so that logits of (tokens,
vocabulary) never exist whole. Nothing here knows losses, and the generation config is never written to.
"""

import copy
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from pydantic import Field
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from lib.config.types import Count, Positive, Section
from lib.rl.sharding import call_gathered, gather_weights, shard_network
from lib.rl.token_batch import TokenBatch

POLICY_ADAPTER = "policy"
CRITIC_ADAPTER = "critic"
LOGITS_BYTES = 2**28  # of one chunk of logits in float32: 440 tokens of a vocabulary of 152,000
_FINGERPRINT_VALUES = 64  # of every weight


class PolicyModelSettings(Section):
    """How a policy is held in memory and computed; the defaults are those of small models on a CPU."""

    # Of the computation; `auto` is bfloat16 on a GPU that has it, float32 elsewhere. What is trained is float32.
    dtype: Literal["auto", "float32", "bfloat16"] = "float32"
    # Rank of the LoRA adapters; 0 trains all weights.
    lora_rank: Annotated[int, Field(ge=0)] = 0
    lora_alpha: Positive = 32.0
    # Modules that get an adapter: `all-linear`, or names such as ["q_proj", "v_proj"].
    lora_targets: str | list[str] = "all-linear"
    # Of the adapters' first weights, half of which are random.
    lora_seed: Annotated[int, Field(ge=0)] = 0
    # Layers are computed again in the backward pass instead of kept: a third slower, for much less memory.
    gradient_checkpointing: bool = False
    # Weights, gradients and optimiser are divided among the processes.
    sharded: bool = False
    # At which tokens are sampled.
    temperature: Positive = 1.0
    # Bytes of logits in float32 that are computed at a time.
    logits_bytes: Count = LOGITS_BYTES


class PolicyModel:
    """A network under training and its reference.

    Example:
        settings = PolicyModelSettings(dtype="bfloat16", lora_rank=16, gradient_checkpointing=True)
        policy = PolicyModel.from_folder("models/Qwen2.5-0.5B-Instruct", settings)
        policy.freeze_reference()
        logprobs = policy.compute_logprobs(batch)  # (B, T - 1), 0 at tokens that the policy did not write

    Attributes:
        network: The transformers model that is trained, and that a generator samples from.
        reference: A frozen copy of the network as it was; None where there is none or LoRA makes it unnecessary.
        settings: How it is held and computed.
        start_folder: The folder that it was read from, or None.
        fingerprint: Fingerprint of the weights at the start: a checkpoint without them fits no others.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        settings: PolicyModelSettings | None = None,
        reference: PreTrainedModel | None = None,
        start_folder: str | Path | None = None,
    ) -> None:
        """Prepare a network for training, in place.

        Args:
            network: A causal language model, on the device where it is trained.
            settings: The defaults where None.
            reference: Another frozen start than the network itself, which `freeze_reference` would copy.
            start_folder: Where the weights come from, and can be read again.

        Raises:
            ValueError: The network changes its logits in a way that is not known here.
        """
        self.settings = settings or PolicyModelSettings()
        self.network = network.eval()  # dropout off, in both passes
        self.reference = reference
        self.start_folder = None if start_folder is None else Path(start_folder)
        self.computes_in_bfloat16 = uses_bfloat16(self.settings, network.device)
        self.fingerprint = compute_fingerprint(network) if start_folder is not None else ""
        self.is_sharded = False
        self._peft_model: PeftModel | None = None
        self._active_adapter = POLICY_ADAPTER

        if self.uses_lora:
            self._add_first_adapter()
        elif self.computes_in_bfloat16:
            network.float()  # the optimiser would lose small steps in half precision
        self._check_logits()
        if self.settings.gradient_checkpointing:
            self._enable_checkpointing(network)
        if self.computes_in_bfloat16:
            # Whoever calls the network itself samples from the distribution that is scored here.
            network.forward = torch.autocast(self.device.type, torch.bfloat16)(network.forward)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        settings: PolicyModelSettings | None = None,
        device: torch.device | str | None = None,
    ) -> "PolicyModel":
        """Read a model in the Hugging Face format.

        Args:
            folder: With config.json and safetensors.
            settings: The defaults where None.
            device: A GPU where there is one, by default.

        Raises:
            ValueError: The folder holds no causal language model in safetensors.
        """
        settings = settings or PolicyModelSettings()
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        in_bfloat16 = settings.lora_rank > 0 and uses_bfloat16(settings, torch.device(device))
        try:
            network = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.bfloat16 if in_bfloat16 else torch.float32,
            )
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"{folder} holds no causal language model in the Hugging Face format ({reason}); "
                "give a folder with config.json and model.safetensors"
            ) from error
        return cls(network.to(device), settings, start_folder=folder)

    # What it is made of ----------------------------------------------------------------------------

    @property
    def uses_lora(self) -> bool:
        """Whether adapters are trained instead of all weights."""
        return self.settings.lora_rank > 0

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.network.device

    @property
    def trunk(self) -> nn.Module:
        """The network without its output layer."""
        return self.network.base_model

    def to(self, device: torch.device | str) -> None:
        """Move the network, and the reference where there is one."""
        self.network.to(device)
        if self.reference is not None:
            self.reference.to(device)

    def freeze_reference(self) -> None:
        """Copies the network as the frozen reference of the KL penalty; with LoRA the base model is the reference."""
        if self.uses_lora or self.reference is not None:
            return
        self.reference = copy.deepcopy(self.network).eval().requires_grad_(False)
        if self.computes_in_bfloat16:
            del self.reference.forward  # it is bound to the network that was copied
            _halve_linear_weights(self.reference)

    def list_trained_parameters(self) -> list[nn.Parameter]:
        """The parameters that the policy's optimiser changes."""
        return list(self.list_named_parameters().values())

    def list_named_parameters(self) -> dict[str, nn.Parameter]:
        """The same by name: all weights, or those of the policy's adapter."""
        if self.uses_lora:
            return self.list_adapter_parameters(POLICY_ADAPTER)
        return dict(self.network.named_parameters())

    def list_adapter_parameters(self, adapter: str) -> dict[str, nn.Parameter]:
        """The parameters of one LoRA adapter by name."""
        return {
            name: parameter
            for name, parameter in self.network.named_parameters()
            if f".{adapter}." in name and "lora_" in name
        }

    def shard(self) -> None:
        """Divide network and reference among the processes; before an optimiser is made."""
        shard_network(self.network)
        if self.reference is not None:
            shard_network(self.reference)
        self.is_sharded = True

    # LoRA ------------------------------------------------------------------------------------------

    def _add_first_adapter(self) -> None:
        if self.computes_in_bfloat16:
            self.network.to(torch.bfloat16)
        with self._draw_reproducibly():
            self._peft_model = add_lora(self.network, self.settings)
        self._keep_adapters_trainable()

    @contextmanager
    def _draw_reproducibly(self) -> Iterator[None]:
        """Adapters start the same in every process and in every run."""
        with torch.random.fork_rng():
            torch.manual_seed(self.settings.lora_seed)
            yield

    def add_adapter(self, name: str) -> None:
        """Add another adapter on the same frozen weights; it changes nothing until it is trained."""
        with self._draw_reproducibly():
            self._peft_model.add_adapter(name, make_lora_config(self.settings))
        self._keep_adapters_trainable()

    def _keep_adapters_trainable(self) -> None:
        """peft lets only the active adapter require gradients; here several are trained by one backward pass."""
        for name, parameter in self.network.named_parameters():
            if "lora_" in name:
                parameter.requires_grad_(True)
        if self.computes_in_bfloat16:
            keep_adapter_inputs(self.network)

    @contextmanager
    def use_adapter(self, name: str) -> Iterator[None]:
        """Compute with another adapter."""
        previous = self._active_adapter
        if name == previous:
            yield
            return
        self._switch_to_adapter(name)
        try:
            yield
        finally:
            self._switch_to_adapter(previous)

    def _switch_to_adapter(self, name: str) -> None:
        self._peft_model.set_adapter(name)
        self._active_adapter = name
        self._keep_adapters_trainable()

    @contextmanager
    def _disable_adapter(self) -> Iterator[None]:
        with self._peft_model.disable_adapter():
            yield
        self._keep_adapters_trainable()

    # Log-probabilities -----------------------------------------------------------------------------

    def compute_logprobs(self, batch: TokenBatch) -> torch.Tensor:
        """Log-probabilities of the policy's tokens.

        Returns:
            (B, T - 1), 0 at tokens that the policy did not write.
        """
        return self.compute_logprobs_and_states(batch)[0]

    def compute_logprobs_and_states(self, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """The same, and the states of all tokens, (B, T, hidden), which a critic may read."""
        return call_gathered(self.network, self._score_tokens, batch, self.network)

    @torch.no_grad()
    def compute_reference_logprobs(self, batch: TokenBatch) -> torch.Tensor:
        """Computes log-probabilities of the policy's tokens under the reference: the policy before training.

        Args:
            batch: B episodes of T tokens.

        Returns:
            (B, T - 1), 0 where the policy wrote no token.

        Raises:
            RuntimeError: There is no reference; `freeze_reference` makes one.
        """
        if self.uses_lora:
            with self._disable_adapter():
                return call_gathered(self.network, self._score_tokens, batch, self.network)[0]
        if self.reference is None:
            raise RuntimeError("no reference was kept; call freeze_reference before training")
        return call_gathered(self.reference, self._score_tokens, batch, self.reference)[0]

    def _score_tokens(
        self, batch: TokenBatch, network: PreTrainedModel
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes log-probabilities of the policy's tokens, in chunks, so that not all logits are in memory at once.

        Args:
            batch: B episodes of T tokens.
            network: The policy or its reference.

        Returns:
            Log-probabilities (B, T - 1), 0 where the policy wrote no token; and hidden states (B, T, hidden).
        """
        states = self.compute_states(batch, network.base_model)
        policy_states = states[:, :-1][batch.mask]  # (policy tokens, hidden): no others are scored
        targets = batch.ids[:, 1:][batch.mask]  # (policy tokens,)
        chunk_size = max(
            1, self.settings.logits_bytes // (4 * network.config.get_text_config().vocab_size)
        )
        if len(targets) <= chunk_size:
            chosen = self._score_chunk(policy_states, targets, network)
        else:
            # The backward pass computes each chunk's logits again: one chunk exists at a time.
            chunks = zip(policy_states.split(chunk_size), targets.split(chunk_size), strict=True)
            chosen = torch.cat(
                [
                    checkpoint(self._score_chunk, *chunk, network, use_reentrant=False)
                    for chunk in chunks
                ]
            )
        logprobs = states.new_zeros(batch.mask.shape, dtype=chosen.dtype)
        return logprobs.masked_scatter(batch.mask, chosen), states

    def compute_states(self, batch: TokenBatch, trunk: nn.Module) -> torch.Tensor:
        """The last states of a trunk, (B, T, hidden)."""
        with self._autocast(), self._checkpoint_layers(trunk):
            outputs = trunk(
                input_ids=batch.ids, attention_mask=batch.attention_mask, use_cache=False
            )
        return outputs.last_hidden_state

    def _score_chunk(
        self, states: torch.Tensor, targets: torch.Tensor, network: PreTrainedModel
    ) -> torch.Tensor:
        """Log-probabilities (tokens,) of targets (tokens,) after states (tokens, hidden)."""
        logits = self._compute_logits(states, network)  # (tokens, vocabulary)
        return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]

    def _compute_logits(self, states: torch.Tensor, network: PreTrainedModel) -> torch.Tensor:
        """Computes logits from the last hidden states, with the model's own scaling, divided by the temperature.

        Args:
            states: (..., hidden).
            network: The model; some kinds scale or cap their logits.

        Returns:
            (..., vocabulary) in float32.
        """
        with self._autocast():
            logits = network.get_output_embeddings()(states).float()
        config = network.config.get_text_config()
        cap = getattr(config, "final_logit_softcapping", None)
        if cap:  # Gemma
            logits = torch.tanh(logits / cap) * cap
        if getattr(config, "logits_scaling", None):  # Granite
            logits = logits / config.logits_scaling
        if getattr(config, "logit_scale", None):  # Cohere
            logits = logits * config.logit_scale
        if self.settings.temperature != 1:
            logits = logits / self.settings.temperature
        return logits

    @torch.no_grad()
    def _check_logits(self) -> None:
        """Checks that `_compute_logits` agrees with the network's own forward pass on a few tokens.

        Raises:
            ValueError: It does not, so that training would score another distribution than is sampled.
        """
        vocab_size = self.network.config.get_text_config().vocab_size
        ids = torch.arange(min(4, vocab_size), device=self.device)[None]  # (1, 4)
        with self._autocast():
            expected = self.network(input_ids=ids, use_cache=False).logits.float()
            states = self.trunk(input_ids=ids, use_cache=False).last_hidden_state
        logits = self._compute_logits(states, self.network) * self.settings.temperature
        tolerance = 0.05 if self.computes_in_bfloat16 else 1e-3
        largest = max(1.0, float(expected.abs().max()))
        if not torch.allclose(logits, expected, atol=tolerance * largest, rtol=0):
            raise ValueError(
                f"{type(self.network).__name__} changes its logits after the output layer in a way "
                "that the trainer does not know, so it would score another distribution than it "
                "samples; choose another model"
            )

    # Precision and checkpointing -------------------------------------------------------------------

    def _autocast(self) -> AbstractContextManager:
        if self.computes_in_bfloat16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def _enable_checkpointing(self, network: PreTrainedModel) -> None:
        network.activation_checkpointing_enable(
            {"use_reentrant": False, "context_fn": self._make_recompute_contexts}
        )

    def _make_recompute_contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        """Contexts of the first computation of a layer, and of that in the backward pass: with the same adapter."""
        if not self.uses_lora:
            return nullcontext(), nullcontext()
        return nullcontext(), self.use_adapter(self._active_adapter)

    @contextmanager
    def _checkpoint_layers(self, trunk: nn.Module) -> Iterator[None]:
        """Switches gradient checkpointing on inside the `with` block: layers are computed again in the backward pass.

        transformers ties checkpointing to training mode, so the layers are set to it, but not the dropout within
        them.

        Args:
            trunk: The network without its output layer.
        """
        if not (self.settings.gradient_checkpointing and torch.is_grad_enabled()):
            yield
            return
        layers = [
            module for module in trunk.modules() if isinstance(module, GradientCheckpointingLayer)
        ]
        for layer in layers:
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False

    # Into a folder ---------------------------------------------------------------------------------

    def save_folder(self, folder: str | Path, is_writer: bool = True) -> None:
        """Write the trained model in the Hugging Face format; adapters are added to the weights that they adapt.

        Args:
            folder: Made if it is not there.
            is_writer: Whether this process writes. With sharded weights all processes call this together, since each
                has a share of every weight, and one of them writes.
        """
        weights = self._merge_weights()
        if is_writer:
            self.network.save_pretrained(folder, state_dict=weights)

    @torch.no_grad()
    def _merge_weights(self) -> dict[str, torch.Tensor]:
        """Merges LoRA adapters into the weights of the base model, gathered from all processes.

        Returns:
            Whole weights by the names of a model without adapters.
        """
        parameters = dict(self.network.named_parameters(remove_duplicate=False))
        weights: dict[str, torch.Tensor] = {}
        gathered: dict[int, torch.Tensor] = {}  # by the id of a sharded parameter
        for name, tensor in self.network.state_dict().items():
            if "lora_" in name:
                continue
            if hasattr(tensor, "full_tensor"):
                # Once for both names of an embedding that is the output layer too, so that one is written.
                key = id(parameters[name])
                if key not in gathered:
                    gathered[key] = tensor.full_tensor()
                tensor = gathered[key]
            weights[name.replace(".base_layer.", ".")] = tensor
        if not self.uses_lora:
            return weights

        # Only now: `state_dict` gives up what was gathered before it.
        with gather_weights(self.network):
            for name, module in self.network.named_modules():
                if hasattr(module, "get_delta_weight"):
                    weight = weights[f"{name}.weight"]
                    delta = module.get_delta_weight(POLICY_ADAPTER)  # (outputs, inputs)
                    weights[f"{name}.weight"] = weight + delta.to(weight.dtype)
        return weights


def compute_fingerprint(network: nn.Module) -> str:
    """Hashes names, shapes and a sample of the values of all weights, which is fast for a large model.

    Args:
        network: The model.

    Returns:
        A hexadecimal digest.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(network.named_parameters()):
        step = max(1, parameter.numel() // _FINGERPRINT_VALUES)
        values = parameter.detach().flatten()[::step][:_FINGERPRINT_VALUES].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()


def add_lora(network: PreTrainedModel, settings: PolicyModelSettings) -> PeftModel:
    """Put the policy's adapter into a network, in place.

    Args:
        network: Its linear layers are replaced by layers with an adapter; its own weights are frozen.
        settings: Of rank, scale and targets.

    Returns:
        peft's wrapper, which switches adapters on and off.
    """
    with warnings.catch_warnings():
        # peft reads a name of transformers that is deprecated; nothing that is set here changes that.
        warnings.filterwarnings(
            "ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning
        )
        return get_peft_model(network, make_lora_config(settings), adapter_name=POLICY_ADAPTER)


def keep_adapter_inputs(network: nn.Module) -> None:
    """Let adapters read their inputs in bfloat16, as autocast has them, although their weights are in float32.

    peft would copy each input to float32 for the backward pass, and autocast then back to bfloat16: three times the
    memory for the same result.
    """
    for module in network.modules():
        if hasattr(module, "cast_input_dtype_enabled"):  # a layer of peft with adapters
            module.cast_input_dtype_enabled = False


def make_lora_config(settings: PolicyModelSettings) -> LoraConfig:
    """The adapters that the settings ask for, without dropout."""
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=settings.lora_targets,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )


def uses_bfloat16(settings: PolicyModelSettings, device: torch.device) -> bool:
    """Whether passes are computed in bfloat16 on a device."""
    if settings.dtype == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return settings.dtype == "bfloat16"


def _halve_linear_weights(network: nn.Module) -> None:
    """Converts the weights of linear layers to bfloat16, which saves half of their memory.

    Autocast would convert them in every pass anyway, so the results are the same. Norms and embeddings are used in
    float32 and stay so; an output layer that shares the embedding's weights stays, too.

    Args:
        network: The model, which is changed.
    """
    shared = {id(parameter) for parameter in network.get_input_embeddings().parameters()}
    for module in network.modules():
        if isinstance(module, nn.Linear) and id(module.weight) not in shared:
            module.to(torch.bfloat16)

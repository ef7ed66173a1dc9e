"""The policy scores what it samples, in any precision; adapters leave the frozen weights as they are."""

import copy
import warnings

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from lib.rl.critic import Critic
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.token_batch import Sample, collate_samples
from tests.budgeted_routing import small_systems

TINY = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LORA = {"lora_rank": 2, "lora_alpha": 8.0}
KINDS = {
    "float32": {},
    "LoRA": LORA,
    "checkpointing": {"gradient_checkpointing": True},
    "LoRA, checkpointing": LORA | {"gradient_checkpointing": True},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, LoRA": {"dtype": "bfloat16"} | LORA,
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def make_qwen3(seed: int = 0, **changes) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    network = Qwen3ForCausalLM(Qwen3Config(**TINY | changes))
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim == 2:
                weight.mul_(10)  # opinions
    return network


def make_policy(network=None, **settings) -> PolicyModel:
    return PolicyModel(network or make_qwen3(), PolicyModelSettings(**settings))


def make_batch(num_samples: int = 5):
    return collate_samples(small_systems.draw_samples(num_samples, words=40), 0)


def compute_expected(network, batch, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of the policy's tokens from the network's own forward pass."""
    logits = network(input_ids=batch.ids, attention_mask=batch.attention_mask).logits
    logprobs = (logits[:, :-1].float() / temperature).log_softmax(-1)
    chosen = logprobs.gather(-1, batch.ids[:, 1:, None])[..., 0]
    return chosen * batch.mask


@kinds
def test_logprobs_are_those_of_the_networks_own_forward_pass(kind):
    policy, batch = make_policy(**kind), make_batch()
    atol = 0.1 if "dtype" in kind else 1e-5
    logprobs = policy.compute_logprobs(batch)
    torch.testing.assert_close(logprobs, compute_expected(policy.network, batch), atol=atol, rtol=0)
    assert not logprobs[~batch.mask].any() and logprobs.dtype == torch.float32


FAMILIES = {
    "Gemma 2 caps its logits": (
        Gemma2ForCausalLM,
        Gemma2Config(**TINY, final_logit_softcapping=0.5, query_pre_attn_scalar=8),
    ),
    "Granite divides them": (GraniteForCausalLM, GraniteConfig(**TINY, logits_scaling=3.0)),
    "Cohere multiplies them": (CohereForCausalLM, CohereConfig(**TINY, logit_scale=0.25)),
}


@pytest.mark.parametrize(("architecture", "config"), FAMILIES.values(), ids=FAMILIES)
def test_logits_are_changed_after_the_head_as_the_model_changes_them(architecture, config):
    policy, batch = make_policy(architecture(config)), make_batch()
    expected = compute_expected(policy.network, batch)
    torch.testing.assert_close(policy.compute_logprobs(batch), expected, atol=1e-5, rtol=0)


def test_a_model_that_changes_its_logits_in_an_unknown_way_is_refused():
    class Shifting(Qwen3ForCausalLM):
        def forward(self, *arguments, **keywords):
            output = super().forward(*arguments, **keywords)
            output.logits = output.logits * 2
            return output

    with pytest.raises(ValueError, match="Shifting changes its logits"):
        make_policy(Shifting(Qwen3Config(**TINY | {"initializer_range": 1.0})))


def test_a_sampling_temperature_is_that_of_the_scored_distribution():
    policy, batch = make_policy(temperature=0.5), make_batch()
    expected = compute_expected(policy.network, batch, temperature=0.5)
    torch.testing.assert_close(policy.compute_logprobs(batch), expected, atol=1e-5, rtol=0)


def compute_gradients(policy: PolicyModel, batch) -> list[torch.Tensor]:
    policy.compute_logprobs(batch).sum().backward()
    return [parameter.grad.clone() for parameter in policy.list_trained_parameters()]


@pytest.mark.parametrize("lora", [{}, LORA], ids=["all weights", "LoRA"])
def test_chunks_and_checkpointing_change_neither_logprobs_nor_gradients(lora):
    batch, network = make_batch(), make_qwen3()
    plain = make_policy(copy.deepcopy(network), **lora)
    frugal = make_policy(
        copy.deepcopy(network), **lora, gradient_checkpointing=True, logits_bytes=4 * 40 * 3
    )
    torch.testing.assert_close(frugal.compute_logprobs(batch), plain.compute_logprobs(batch))
    pairs = zip(compute_gradients(frugal, batch), compute_gradients(plain, batch), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_logits_of_all_tokens_never_exist_at_once(monkeypatch):
    policy, batch = make_policy(logits_bytes=4 * 40 * 3), make_batch()
    sizes = []
    compute_logits = policy._compute_logits
    monkeypatch.setattr(
        policy, "_compute_logits", lambda s, n: sizes.append(len(s)) or compute_logits(s, n)
    )
    policy.compute_logprobs(batch).sum().backward()
    assert max(sizes) == 3 and sum(sizes) == 2 * int(batch.mask.sum())  # forward and backward


@kinds
def test_at_the_start_policy_and_reference_are_exactly_the_same(kind):
    """In bfloat16 too, where the reference is held in half of the memory."""
    policy, batch = make_policy(**kind), make_batch()
    policy.freeze_reference()
    assert torch.equal(policy.compute_reference_logprobs(batch), policy.compute_logprobs(batch))


@kinds
def test_training_moves_the_policy_and_not_the_reference(kind):
    policy, batch = make_policy(**kind), make_batch()
    policy.freeze_reference()
    before = policy.compute_reference_logprobs(batch)
    with torch.no_grad():
        for parameter in policy.list_trained_parameters():
            parameter.add_(0.1)
    assert torch.equal(policy.compute_reference_logprobs(batch), before)
    assert not torch.allclose(policy.compute_logprobs(batch), before, atol=0.05)


def test_lora_keeps_no_copy_of_the_weights_and_trains_the_adapter_in_float32():
    policy = make_policy(dtype="bfloat16", **LORA)
    policy.freeze_reference()
    assert policy.reference is None
    trained = policy.list_named_parameters()
    assert trained and all("lora_" in name for name in trained)
    assert {parameter.dtype for parameter in trained.values()} == {torch.float32}
    assert policy.network.model.embed_tokens.weight.dtype == torch.bfloat16
    assert not any("lm_head" in name for name in trained)


def test_only_named_modules_are_adapted_where_names_are_given():
    names = make_policy(lora_rank=1, lora_targets=["q_proj"]).list_named_parameters()
    assert len(names) == 4 and all("q_proj" in name for name in names)


def test_adapters_start_the_same_in_every_process_and_draw_nothing_from_the_run():
    torch.manual_seed(5)
    one = make_policy(make_qwen3(), **LORA).list_trained_parameters()
    state = torch.random.get_rng_state()
    network = make_qwen3()
    torch.random.set_rng_state(state)
    other = make_policy(network, **LORA).list_trained_parameters()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_all_weights_are_float32_for_the_optimiser_where_passes_are_bfloat16():
    policy = make_policy(make_qwen3().to(torch.bfloat16), dtype="bfloat16")
    assert {parameter.dtype for parameter in policy.list_trained_parameters()} == {torch.float32}
    states = policy.network.model.layers[0].mlp.gate_proj
    seen = []
    states.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    policy.network(input_ids=torch.tensor([[1, 2]]))  # as a generator calls it
    policy.compute_logprobs(make_batch())
    assert seen == [torch.bfloat16, torch.bfloat16]


def test_dropout_is_off_in_both_passes():
    network = make_qwen3(attention_dropout=0.9).train()
    policy, batch = make_policy(network, gradient_checkpointing=True), make_batch()
    assert torch.equal(policy.compute_logprobs(batch), policy.compute_logprobs(batch))
    with torch.no_grad():
        before = policy.compute_logprobs(batch)
    torch.testing.assert_close(policy.compute_logprobs(batch), before)


def test_a_model_with_checkpointing_still_writes_with_a_cache_and_its_own_generation_config():
    network = make_qwen3()
    network.generation_config.repetition_penalty = 1.3
    config_before = network.generation_config.to_dict()
    plain = network.generate(torch.tensor([[5, 6]]), do_sample=False, max_new_tokens=8)
    policy = make_policy(network, gradient_checkpointing=True)
    policy.compute_logprobs(make_batch()).sum().backward()
    written = network.generate(torch.tensor([[5, 6]]), do_sample=False, max_new_tokens=8)
    assert torch.equal(written, plain) and network.generation_config.to_dict() == config_before
    assert not any(module.training for module in network.modules())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_separate_critic_under_lora_is_a_second_adapter_that_leaves_the_policy_alone(
    checkpointing,
):
    """Gradients of either loss reach its own adapter only, also where layers are computed again."""
    batch = make_batch()
    policy = make_policy(gradient_checkpointing=checkpointing, **LORA)
    critic = Critic(policy, is_separate=True)
    torch.nn.init.ones_(critic.head.weight)
    adapters = {name: policy.list_adapter_parameters(name) for name in ("policy", "critic")}
    assert adapters["policy"].keys().isdisjoint(adapters["critic"]) and critic.trunk is None
    with torch.no_grad():
        for index, parameters in enumerate(adapters.values()):
            for parameter in parameters.values():
                parameter.add_(0.05 * (index + 1))  # they differ

    def compute_both(policy_weight: float, critic_weight: float) -> dict[str, torch.Tensor]:
        policy.network.zero_grad()
        logprobs, states = policy.compute_logprobs_and_states(batch)
        values = critic(batch, states)
        (policy_weight * logprobs.sum() + critic_weight * values.pow(2).sum()).backward()
        return {
            name: torch.cat([p.grad.flatten() for p in parameters.values()])
            for name, parameters in adapters.items()
        }

    both, of_policy, of_critic = compute_both(1, 1), compute_both(1, 0), compute_both(0, 1)
    assert both["policy"].any() and both["critic"].any()
    torch.testing.assert_close(both["policy"], of_policy["policy"])
    torch.testing.assert_close(both["critic"], of_critic["critic"])
    assert not of_policy["critic"].any() and not of_critic["policy"].any()


def test_gradients_of_a_separate_critic_under_lora_are_right_where_layers_are_computed_again():
    gradients = []
    for checkpointing in (False, True):
        policy = make_policy(make_qwen3(), gradient_checkpointing=checkpointing, **LORA)
        critic = Critic(policy, is_separate=True)
        torch.nn.init.ones_(critic.head.weight)
        with torch.no_grad():
            for parameter in critic.list_named_parameters().values():
                parameter.add_(0.05)
        batch = make_batch()
        logprobs, states = policy.compute_logprobs_and_states(batch)
        (logprobs.sum() + critic(batch, states).pow(2).sum()).backward()
        parameters = [*policy.list_trained_parameters(), *critic.list_named_parameters().values()]
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in parameters]))
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [{}, LORA], ids=["all weights", "LoRA"])
def test_a_saved_folder_is_the_trained_model_without_adapters(kind, tmp_path):
    policy, batch = make_policy(**kind), make_batch()
    with torch.no_grad():
        for parameter in policy.list_trained_parameters():
            parameter.add_(0.1)
    policy.save_folder(tmp_path)
    read = PolicyModel.from_folder(tmp_path, device="cpu")
    assert type(read.network) is Qwen3ForCausalLM
    expected = policy.compute_logprobs(batch)
    torch.testing.assert_close(read.compute_logprobs(batch), expected, atol=1e-4, rtol=0)


def test_adapters_are_added_without_a_warning_of_what_peft_reads_and_other_warnings_stay():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policy = make_policy(**LORA)
        policy.add_adapter("another")
        warnings.warn("`is_gradient_checkpointing` is deprecated", FutureWarning, stacklevel=1)
    messages = [str(warning.message) for warning in caught]
    assert messages.count("`is_gradient_checkpointing` is deprecated") == 1  # ours, from outside
    assert not [
        text
        for text in messages
        if text.startswith("`is_gradient_checkpointing` is deprecated and")
    ]


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} holds no causal language model"):
        PolicyModel.from_folder(tmp_path)


def test_nothing_after_the_first_end_token_of_a_turn_is_learned_where_the_mask_ends_there():
    """A generator that pads with one of two end tokens: what follows the first is not the policy's."""
    end, other_end, pad = 2, 3, 2
    turn = [7, 9, other_end]
    padding = [end, pad, pad, pad]
    prompt = [4, 5, 6]
    ids = [*prompt, *turn, *padding]
    mask = [False] * 3 + [True] * 3 + [False] * 4
    batch = collate_samples([Sample(ids, mask, 1.0)], pad)
    policy = make_policy()
    logprobs = policy.compute_logprobs(batch)
    assert int((logprobs != 0).sum()) == len(turn)

    # The same gradient as without the padding.
    padded = compute_gradients(policy, batch)
    policy.network.zero_grad()
    cut = collate_samples([Sample(ids[:6], mask[:6], 1.0)], pad)
    for one, other in zip(padded, compute_gradients(policy, cut), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)

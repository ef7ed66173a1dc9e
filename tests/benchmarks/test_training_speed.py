"""What a GRPO-sized update costs against TRL's, on the same model and episodes.

Both score the reference, then take one step along the gradient of all episodes with AdamW. A part of each
completion is a reply that has no term in the loss; TRL computes its logits all the same. Goal: no slower than TRL, with
the vocabulary of the lab and with one that a real model may have.
"""

import copy
from functools import partial

import pytest
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.grpo_trainer import add_fused_lm_head

from lib.language_models.tokenizer import get_tokenizer
from lib.rl.losses import compute_group_advantages
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.token_batch import Sample
from lib.rl.token_ppo import TokenPPO
from tests.benchmarks.clock import compare, relax, scale
from tests.budgeted_routing import small_systems

GOAL = 1.0
ROWS = scale(64, least=16)
GROUP, PROMPT, COMPLETION = 8, 64, 128
KL_WEIGHT, CLIP, LEARNING_RATE, MAX_GRAD_NORM = 0.05, 0.2, 1e-4, 1.0

pytestmark = pytest.mark.usefixtures("one_thread", "silence")


@pytest.fixture
def silence(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")


def make_network(num_words: int) -> LlamaForCausalLM:
    """Of the size of the large lab model."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=num_words,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=320,
            max_position_embeddings=512,
            tie_word_embeddings=True,
        )
    ).eval()


def make_inputs(num_words: int) -> dict[str, torch.Tensor]:
    """Random episodes in TRL's form, the middle third of every completion a reply of others."""
    generator = torch.Generator().manual_seed(0)
    tool_mask = torch.ones(ROWS, COMPLETION, dtype=torch.long)
    tool_mask[:, COMPLETION // 3 : 2 * COMPLETION // 3] = 0
    rewards = torch.randint(3, (ROWS,), generator=generator).float()
    return {
        "prompt_ids": torch.randint(1, num_words, (ROWS, PROMPT), generator=generator),
        "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(1, num_words, (ROWS, COMPLETION), generator=generator),
        "completion_mask": torch.ones(ROWS, COMPLETION, dtype=torch.long),
        "tool_mask": tool_mask,
        "num_items_in_batch": tool_mask.sum(),
        "rewards": rewards,
        "advantages": compute_group_advantages(rewards, GROUP),
    }


class TRLUpdate:
    """TRL's GRPO from finished episodes to changed weights: reference, loss, gradient, clipping, AdamW."""

    def __init__(self, network: LlamaForCausalLM, inputs: dict[str, torch.Tensor], folder) -> None:
        self.inputs = inputs
        config = GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=ROWS,
            num_generations=GROUP,
            beta=0.0,  # or TRL would look for the reference in a folder
            epsilon=CLIP,
            loss_type="grpo",
            use_cpu=True,
            report_to="none",
            bf16=False,
            gradient_checkpointing=False,
            temperature=1.0,
        )
        self.reference = copy.deepcopy(network).requires_grad_(False)
        self.trainer = GRPOTrainer(
            network,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["a"]}),
            processing_class=get_tokenizer(),
        )
        self.trainer.beta = KL_WEIGHT
        add_fused_lm_head(self.reference)  # as TRL does with a reference that it has read itself
        self.trainer.current_gradient_accumulation_steps = 1
        self.network = network
        self.optimiser = torch.optim.AdamW(
            network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0
        )

    def update(self) -> None:
        inputs = self.inputs
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention_mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        with torch.no_grad():
            reference_logprobs, *_ = self.trainer._get_per_token_logps_and_entropies(
                self.reference, ids, attention_mask, COMPLETION
            )
        loss = self.trainer._compute_loss(
            self.network, inputs | {"ref_per_token_logps": reference_logprobs}
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), MAX_GRAD_NORM)
        self.optimiser.step()
        self.optimiser.zero_grad()


def make_trainer(network: LlamaForCausalLM, **model) -> TokenPPO:
    settings = small_systems.make_learn_settings(
        advantages="group",
        average="sequence",
        learning_rate=LEARNING_RATE,
        kl=KL_WEIGHT,
        clip=CLIP,
        max_grad_norm=MAX_GRAD_NORM,
        minibatch=ROWS,
        microbatch=ROWS,
    )
    return TokenPPO(PolicyModel(network, PolicyModelSettings(**model)), settings, 0, 10**6)


def make_samples(inputs: dict[str, torch.Tensor]) -> list[Sample]:
    """The same episodes in our form."""
    rows = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1).tolist()
    masks = inputs["tool_mask"].bool().tolist()
    return [
        Sample(row, [False] * PROMPT + mask, reward, index // GROUP)
        for index, (row, mask, reward) in enumerate(
            zip(rows, masks, inputs["rewards"].tolist(), strict=True)
        )
    ]


@pytest.mark.parametrize("num_words", [len(get_tokenizer()), 16_000], ids=["lab", "large"])
def test_an_update_is_no_slower_than_trls(num_words, tmp_path):
    inputs = make_inputs(num_words)
    theirs = TRLUpdate(make_network(num_words), inputs, tmp_path)
    trainer, samples = make_trainer(make_network(num_words)), make_samples(inputs)
    comparison = compare(theirs.update, partial(trainer.update, samples), GOAL)
    print(f"TRL {comparison.slow:.3f} s, ours {comparison.fast:.3f} s, {comparison.ratio:.2f}")
    assert comparison.ratio >= relax(GOAL)


def test_both_come_to_the_same_weights(tmp_path):
    """Or the comparison would be of different work."""
    num_words = len(get_tokenizer())
    inputs = make_inputs(num_words)
    theirs = TRLUpdate(make_network(num_words), inputs, tmp_path)
    trainer = make_trainer(make_network(num_words))
    before = make_network(num_words).state_dict()
    theirs.update()
    trainer.update(make_samples(inputs))
    network = trainer.policy.network.state_dict()
    for name, weight in theirs.network.state_dict().items():
        assert not torch.equal(weight, before[name])
        torch.testing.assert_close(network[name], weight, atol=0.1 * LEARNING_RATE, rtol=0)

"""What several systems train with: losses, token-level PPO and GRPO, rollouts with experts, and supervised warm-up.

`losses` has each formula once; `token_ppo` updates a policy on `rollout`s; `generators` turn messages into tokens and
turns into text; `call_protocol` is what a controller and experts say to each other, `expert_pool` who can be asked and
at what price; `budget_reward` is CoRL's; `sft_warmup` teaches the protocol first; `training_log` tells who wrote
which part of an episode;
`seed_batched` runs networks of several seeds by one call.
"""

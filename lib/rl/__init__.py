"""What several systems train with: losses, token-level PPO and GRPO, rollouts with experts, and supervised warm-up.

`losses` has each formula once; `token_ppo` updates a policy on `rollout`s; `generators` turn messages into tokens and
turns into text; `call_protocol` is how a controller and experts talk, `expert_pool` asks experts and bills
their calls; `budget_reward` is CoRL's; `sft_warmup` trains the protocol first; `transcript` splits an
episode by who wrote what; `seed_batched` runs networks of several seeds by one call; `controller_training` is the
loop of updates that systems share, and `user_training` a whole run on a user's own model and questions, from the
command line to the report.
"""

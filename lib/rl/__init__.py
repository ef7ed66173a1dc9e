"""What several systems train with: losses, token-level PPO and GRPO, rollouts with experts, and supervised warm-up.

A policy: `policy_model` is the network that is trained and its reference, `critic` its values, `sharding` divides both
among processes, `memory_plan` says what a training will take, `heap` keeps it from taking more.
Learning: `losses` has each formula once, `token_batch` turns episodes into tensors, `token_ppo` makes an update of
them, `training_checkpoint` keeps what was trained, `controller_training` is the loop that systems share.
Episodes: `generators` turn messages into tokens and contexts into turns, `rollout` alternates turns and replies,
`call_protocol` is how a controller and experts talk, `expert_pool` asks experts and bills their calls, `transcript`
splits an episode by who wrote what, `tool_conversation` has JSON calls in the form of a chat template.
Besides: `budget_reward` is CoRL's reward, `sft_warmup` trains the protocol first, `seed_batched` runs networks of
several seeds by one call, and `user_training` is a whole run on a user's own model and questions.
"""

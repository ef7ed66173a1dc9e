"""MAESTRO: a Conductor that learns how much each reward should count, inside GRPO.

    head        reads a hidden state, says which reward to emphasise
    meta        how it learns: REINFORCE on the advantages that the policy was paid
    weighting   what else can weigh rewards: a fixed vector, a random one
    rewards     the five rewards, and what the policy says of its own rollouts
    preference  the reward model behind one of them, trained on pairs
    judge       a language model as reward
    trainer     TRL's GRPO trainer with three overrides
    data, arms, evaluation, study   what is compared, on what, how, and in which jobs
    sceptic     does the Conductor's advantage know anything about quality?

`python -m lib train maestro --help` trains one arm on a model and a dataset of one's own.
"""

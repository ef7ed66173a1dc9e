"""MAESTRO: a Conductor that learns how much each reward should count, inside GRPO.

    meta_policy           reads a hidden state, says which reward to emphasise
    meta_policy_training  how it learns: REINFORCE on the advantages that the policy was paid
    weighting             what else can weigh rewards: a fixed vector, a random one
    rewards               the five rewards, and what the policy says of its own rollouts
    reward_model          the model behind one of them, trained on pairs
    llm_judge             a language model as reward
    trainer               TRL's GRPO trainer with three overrides
    initial_policy        the policy that every training starts from
    data, variants, evaluation, experiment   what is compared, on what, how, and in which jobs
    reward_diagnostics    does the Conductor's advantage know anything about quality?

`python -m lib train maestro --help` trains one variant on a model and a dataset of your own.
"""

"""MAESTRO: a Conductor that learns how much each reward should count, inside GRPO.

The method
    meta_policy             the Conductor: from a hidden state to a distribution over rewards
    meta_policy_training    how it learns: REINFORCE on the policy's advantages; the anchored Conductor (ours)
    weighting               fixed and random weights, and the interface that all share
    reply_format            what is in form, and what of a reply is its thought
    policy_readout          states, entropies and likelihoods of rollouts
    rewards                 the five rewards and their normalisation
    reward_model            the model behind one of them, trained on pairs
    llm_judge, judge_costs  a language model as reward, and its price
    trainer, rollouts       TRL's GRPO trainer with three overrides; rollouts of lab models

Trained language models
    data                            three categories of tasks
    initial_policy, typical_replies the policy that every training starts from
    variants                        what is trained and compared
    jobs, training_job              settings of all jobs, and what a job does
    evaluation                      a verifier per category
    experiment, results             all trainings and tests; the results table
    reward_diagnostics              what rewards know, and what advantages follow
    costs                           operations and wall time of the Conductor
    full_run                        the recorded run of every method and seed
    lesson_estimates                what lesson 04 measures, by metric key
    ablations                       what lesson 09 compares
    paper_profile                   the paper's settings on shrunk counts

A policy of your own: `python -m lib train maestro --help`, `python -m lib evaluate maestro --help`
    train_command, evaluate_command training; the trained policy against its start
    training_presets                the paper's seven data sets, with their lengths and intervals
    reward_scale                    where a reward model's scores lie

The synthetic environment, whose optimum is known
    synthetic_environment, synthetic_methods    prompts, candidates, rewards; what is compared
    synthetic_training, synthetic_benchmark     GRPO and its evaluation; jobs
"""

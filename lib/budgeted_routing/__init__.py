"""CoRL: a controller that learns, under a budget, whether to answer, which expert to call, and with what question.

Trained language models
    variants                what is trained and compared
    worlds                  sets of experts and questions
    prompts, templates      what controllers that follow instructions are told
    budget_episodes         episodes, many at once, each with a budget
    expert_outcomes         what the experts can do, and at what price
    jobs, controller_job    settings of all jobs, and what a job does
    experiment              all trainings and tests
    baselines               constants, random, cascade, trained routers, oracle
    results                 the results table
    budget_control          whether budgets are kept
    lesson_estimates        what lesson 05 measures, by metric key
    full_run                the recorded run of every world and seed
    ablations               what lesson 09 compares
    train_command           a controller of your own: `python -m lib train corl --help`

The synthetic environment, whose optimum is computed
    synthetic_environment, synthetic_strategies      queries, experts, prices; exact values of strategies
    synthetic_controllers, synthetic_training        small controllers, trained by the same losses
    synthetic_benchmark, synthetic_job               rows of the results table, computed once
    synthetic_estimates                              what lesson 05 measures there

Recorded outcomes of real models
    recorded_benchmark, recorded_job                 the same reward and losses, from bandit feedback

The trainer, the call protocol and the pool of experts are shared with ToolOrchestra: `lib.rl`.
"""

"""CoRL: a controller that learns, under a budget, whether to answer, which expert to call, and with what question.

budget_episodes   episodes, many at once, each with a budget
variants          what is trained and compared
expert_outcomes   what the experts can do, and at what price
experiment        all trainings and tests, as jobs
baselines         constants, random, cascade, trained routers, oracle
results           the results table of a study
train_command     training on a model and questions of your own, `python -m lib train corl --help`

The trainer, the call protocol and the pool of experts are shared with ToolOrchestra: `lib.rl`.
"""

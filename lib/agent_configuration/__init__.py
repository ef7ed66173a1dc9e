"""ARC: for each question a workflow, tools, budgets and prompts, chosen by a small policy that learned what they bring.

`action_space` is what there is to choose from, `workflows` are nine programs over the calls of an `agent_team`,
`agent_system` plays many at once; `policies` choose, `policy_updates` and `training` say how they learn. `search`,
`prompted_baseline` and `baselines` are what they are compared with, `experiment` runs all of it. `synthetic_benchmark`
trains the same policies in worlds whose best configuration is known.
`python -m lib ask "question"` asks a trained policy, `python -m lib train arc` (`train_command`, and the modules whose
names begin with `user_`) trains one on a user's model and questions.
"""

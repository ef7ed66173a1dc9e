"""ARC: for each question a workflow, tools, budgets and prompts, chosen by a small policy that learned what they bring.

`space` is what there is to choose from, `workflows` are nine programs over the calls of a `team`, `system` plays many
at once; `policies` choose, `learn` and `training` say how they come to. `search`, `prompted` and `baselines` are what
they are compared with, `study` is the experiment. `python -m lib ask "question"` asks a trained policy.
"""

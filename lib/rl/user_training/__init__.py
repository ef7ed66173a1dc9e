"""Training of CoRL and ToolOrchestra on a user's own model and questions: `python -m lib train corl|toolorchestra`.

    options      the command line that both share
    data         questions, their scorer, and the held-out split
    experts      which models are asked, what they cost, and what the run may cost at the most
    run_folder   everything of a run lies in one folder, which one process works in at a time
    progress     a line about what is under way
    training     the updates: rollouts, reward, learning, checkpoints
    evaluation   the controller before and after training beside baselines, on held-out questions
    page         the report of a run

`train arc` has no model to train and uses data, options, run_folder, progress, evaluation and page alone. What is a
system's own (prompts, reward, baselines) lies in its package, in `train_command`.
"""

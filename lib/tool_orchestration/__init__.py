"""ToolOrchestra: an orchestrator that learns which tool to call from outcome, cost, latency and a user's preferences.

    rewards                the vector of a rollout, both normalisations, the reward, the filters; the published error
    tool_menu              what is on offer in a rollout, at what price and latency, and what the user prefers
    episode_specs          a question or an office task with a menu, drawn at random
    tool_environment       the tools at work: functions, databases, models; outages
    single_tool_baselines  every single tool used by a fixed procedure: baselines, and what traces are made of
    sft_warmup             what the orchestrator is taught first: the protocol
    variants               what is trained, and by which reward
    experiment             all trainings and tests, as jobs
    plain_prompt           menus and users in plain English, for models that know more than the lab's words
    train_command          training on a model and questions of your own, `python -m lib train toolorchestra --help`
    user_evaluation        its rewards, baselines and steering on held-out questions
    rule_baselines         the preference benchmark, generalisation, the sweep over preferences

The trainer, generators and rollouts are shared with CoRL: `lib.rl`.
"""

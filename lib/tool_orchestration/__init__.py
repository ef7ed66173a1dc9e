"""ToolOrchestra: an orchestrator that learns which tool to call from outcome, cost, latency and a user's preferences.

    rewards                outcome vectors, both normalizations, the reward, filters, scores with and without a bound

    The synthetic environment, whose optimum is computed:
    synthetic_environment  questions, menus, users, and the expected utility of every choice
    synthetic_training     GRPO with tiny policies, and its variants
    synthetic_evaluation   what a policy earns, computed from its probabilities
    synthetic_benchmark    all of it as jobs and rows of the results table
    synthetic_estimates    estimates of lesson 06a, by metric key

    The lab world, in which an orchestrator reads what tools can do:
    lab_menus              tools with names, abilities and prices of their own on every menu
    format_warmup          supervised training on the form of turns, which teaches no choice
    lab_episodes           an orchestrator calls tools, and what that costs
    lab_training           groups of rollouts, drawn again where all of a group agree
    menu_baselines         choices without an orchestrator, and the score of all
    steering               expected cost and latency on the same menus for users who want one thing only
    lab_world              the models behind the tools, and the menus that all methods are tested on
    lab_tests              what is measured on these menus
    lab_experiment         all trainings and tests, as jobs
    lab_results            the same as rows of the results table
    lab_estimates          estimates by metric key
    full_run               what the recorded run of lesson 06 trains

    Tools that are functions, databases and models, and office tasks:
    tool_menu              tools at prices and latencies, and what the user prefers
    episode_specs          a question or an office task with a menu and a user
    plain_prompt           menus and users in plain English
    tool_environment       executes the calls of an episode; outages
    single_tools           every tool by itself, used by a fixed procedure
    tool_outcomes          what every tool answers by itself, for lesson 03
    user_dialogue          users who say parts of an office task only when asked
    writer_tools           a model writes a search or a program, which then runs
    price_configurations   random price lists that an evaluation is repeated under
    model_descriptions     what menus say of a model, written from its measured profile
    prompted_baseline      an orchestrator that is only prompted
    task_solvers           the strongest model filters office tasks
    make_tasks_command     `python -m lib tasks make`: office tasks

    On models and questions of your own, `python -m lib train toolorchestra`, `... evaluate toolorchestra`:
    train_command          the training
    episode_rewards        what episodes are rewarded, and what a training learns from
    user_evaluation        rewards, baselines and steering on held-out questions
    evaluate_command       prompted orchestrators: pilot study, preference benchmark, office tasks with a user
    pilot_study            tables of both, with self-enhancement and other-enhancement
    service_command        the same with --tasks tau2:retail: customer service with functions, and with models
    service_results        pass^k and pass@k, dollars, and a table that routers read
    service_train_command  the training with --tasks tau2:retail
    service_training       its episodes, rewards and evaluation
    service_policy         the policy as the agent, its turns kept as tokens
    service_episodes       conversations of an agent, a user and tools that change a database, shared by both
    service_prompts        what agent and experts read
    service_plan           what conversations may cost
    service_options        options, tasks and models that both commands share

The trainer, generators and rollouts are shared with CoRL: `lib.rl`.
"""

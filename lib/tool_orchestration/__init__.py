"""ToolOrchestra: an orchestrator that learns which tool to call from outcome, cost, latency and what a user prefers.

    rewards      the vector of a rollout, both normalisations, the reward, the filters; and the published error
    menu         what is on offer in a rollout, at what price and latency, and what the user prefers
    assignments  a question or an office task with its menu, drawn by lot
    desk         the tools at work: functions, databases, models; outages
    strategies   every single tool used by a fixed procedure: baselines, and what traces are made of
    warm         what the orchestrator is taught first: the protocol
    arms         what is trained, and by which reward
    study        everything, in jobs of a sweep
    benchmark    the preference benchmark, generalisation, the sweep over preferences

The trainer, the voices and the episodes are those of the room around it.
"""

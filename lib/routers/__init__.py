"""Routers between your own models, and the routers of lesson 08 on recorded outcomes.

    from lib import routers
    routers.load("ROUTER").route(messages, budget=0.002)

From prompts and models to a router that is served: `collect_outcomes` asks and scores, `evaluate_command` says whether
choosing pays, `fit_router` fits with `prompt_encoder` and `success_model`, `saved_router` keeps it and chooses,
`router_service` answers OpenAI clients, and `controller_service` does so with a trained CoRL controller; the commands
are `python -m lib router collect|evaluate|fit|serve`.
On recorded outcomes: `methods` are all papers' decision models, simple routers, constants and an oracle on one table,
`experiment` plays them on every table, `logged_policies` estimates them from logs.
"""

from lib.routers.saved_router import Route, Router, RouterError
from lib.routers.saved_router import load_router as load

__all__ = ["Route", "Router", "RouterError", "load"]

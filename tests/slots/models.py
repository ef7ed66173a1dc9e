"""A model of llm.models behind HTTP: the lines of params.yaml that name one, and who asks it what."""

from typing import Any

from lib.tasks import Item, draw_items

NAME = "hosted"  # of the model in llm.models


def make_endpoint(url: str, **changes: Any) -> dict[str, Any]:
    """The settings of a model behind a server at a URL, as a reader of the README writes them."""
    endpoint = {
        "backend": "endpoint",
        "base_url": url,
        "model": "m",
        "price_in": 1e-7,
        "price_out": 1e-6,
        "kwh_per_token": 0.0,
        "temperature": 0.0,
        "max_tokens": 500,
        "timeout": 120.0,
        "retries": 0,
        "concurrency": 4,
    }
    return endpoint | changes


def draw_arithmetic(family: str, n: int, difficulty: Any = None) -> list[Item]:
    """Questions of a family of arithmetic: chain, big or mixed."""
    return draw_items(family, "test", n, difficulty, seed=3, unique=True)

"""Lab models behind the project's own server, so that a router's whole chain runs offline over real HTTP."""

from contextlib import contextmanager
from pathlib import Path

from lib.language_models.serving.model_sources import load_released_model
from lib.language_models.serving.server import app
from lib.language_models.training import released_weights
from tests.language_models.serving.test_server import serve_in_thread

PRICES = {"lab-nano": 4.0e-8, "lab-mini": 4.0e-7, "lab-large": 4.0e-6}  # US dollars per token


@contextmanager
def serve_lab_models():
    """The address of a server with three lab models."""
    models = {name: load_released_model(name, released_weights.LAB) for name in PRICES}
    with serve_in_thread(app(models)) as url:
        yield url


def write_model_file(path: Path, url: str, names=tuple(PRICES), **changes) -> Path:
    """A file of models as a user writes it, for `--model-file`."""
    lines = ["models:"]
    for name in names:
        fields = {
            "backend": "endpoint",
            "base_url": f'"{url}"',
            "model": name,
            "price_in": PRICES[name],
            "price_out": PRICES[name],
            "max_tokens": 96,
            "reasoning_tokens": 0,
            "temperature": 0.0,
            "retries": 2,
            "timeout": 600,  # a machine under load is slow, not wrong
            "concurrency": 64,  # the server answers many in one batch
            **changes,
        }
        listed = ", ".join(f"{field}: {value}" for field, value in fields.items())
        lines.append(f"  {name}: {{{listed}}}")
    path.write_text("\n".join(lines) + "\n")
    return path

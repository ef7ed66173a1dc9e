"""The bench: environments, policies, orchestrators and what the notebooks need of them."""

import os

# Before any Hugging Face library is imported, for they look once: nothing is fetched, and nobody is told (TRL's
# trainers report home otherwise).
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

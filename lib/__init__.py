"""The bench: environments, policies, orchestrators and what the notebooks need of them."""

"""Policy orchestration: a language model picks, at every step, which trained policy acts (KO, TO, RO)."""

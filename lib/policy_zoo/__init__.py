"""Single-objective policies and the multi-objective references: training, files, cards."""

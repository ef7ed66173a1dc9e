"""Figures: one theme, one colour for each method, one message each."""

"""Sliders exist where someone can move them, and the report gets a still figure."""

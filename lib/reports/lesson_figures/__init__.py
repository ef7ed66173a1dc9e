"""Drawings that one lesson alone needs: conversations, episodes, choices."""

"""What a lesson shows and leaves behind: figures, tables, metrics, its page and the front page."""

from lib.reporting import styles

__all__ = ["styles"]

"""What lessons 06 and 07 show: figures, tables, words and metrics."""

from lib.reporting import styles

__all__ = ["styles"]

"""What a lesson shows and leaves behind: figures, tables, metrics, its page and the front page."""

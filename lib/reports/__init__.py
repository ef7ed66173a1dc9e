"""Pages: what a lesson shows, tables, HTML and the front page; a number is formatted once, here."""

"""`tailtap testbed`: several machines, and what a person asks of them."""

"""What is made of results: pages, figures, databases, files for other programs, and imports."""

"""What a person sees: reports, live pages, published sites, and results repeated."""

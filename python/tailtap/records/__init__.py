"""What is stored and exchanged, as types, with their errors and units: one reader, one writer."""

"""Several machines: which there are, how they are cabled and reached, and who does what."""

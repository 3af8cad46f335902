"""What is changed on a machine and put back: resources, and the journal of them."""

"""Speed and memory, side by side with other ways: `make bench` and `make bench-long`."""

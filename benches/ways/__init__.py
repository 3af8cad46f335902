"""Ways from a pair of captures to the percentiles of the latency, one file each."""

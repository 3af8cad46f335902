-- DPDK's options for libmoon on two interfaces of the kernel, without huge pages of its own.
DPDKConfig {
	cli = {
		"--file-prefix", "tt-libmoon",
		"--no-pci",
		"--vdev", "net_af_packet0,iface=" .. os.getenv("INGRESS"),
		"--vdev", "net_af_packet1,iface=" .. os.getenv("EGRESS"),
	}
}

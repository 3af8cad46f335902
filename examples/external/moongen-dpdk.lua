-- DPDK's options for MoonGen on an interface of the kernel, without huge pages of its own.
DPDKConfig {
	cli = {
		"--file-prefix", "tt-moongen",
		"--no-pci",
		"--vdev", "net_af_packet0,iface=" .. os.getenv("PORT"),
	}
}

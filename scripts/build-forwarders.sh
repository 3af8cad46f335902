#!/bin/sh
# Builds DPDK's examples l2fwd and l3fwd into the folder $1 as dpdk-l2fwd and dpdk-l3fwd, from
# Debian's source package of the DPDK that is installed (libdpdk-dev). Works in the folder $2, with
# what debian-sources.sh wrote there.
set -eu
target=$1
work=$2
version=$(dpkg-query -W -f '${source:Version}' libdpdk-dev)
mkdir -p "$work/dpdk"
cd "$work/dpdk"
if ! [ -e "dpdk_$version.dsc" ]; then
    rm -rf ./*
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources" \
        -o Dir::State::lists="$work/lists" -o APT::Sandbox::User=root \
        source --download-only "dpdk=$version"
fi
tar -xf dpdk_*.orig.tar.xz --strip-components=1 --wildcards \
    '*/examples/l2fwd' '*/examples/l3fwd' '*/examples/common'

# The one change, as later versions have it: l3fwd asks each port only for those checksums that the
# port can check. It would refuse ports that the kernel drives.
cd examples/l3fwd
grep -q '		if (dev_info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE)' main.c
sed -i -e '/		if (dev_info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE)/i\
		local_port_conf.rxmode.offloads \&= dev_info.rx_offload_capa;' \
    -e 's/rxq_conf.offloads = port_conf.rxmode.offloads;/rxq_conf.offloads = port_conf.rxmode.offloads \& dev_info.rx_offload_capa;/' \
    main.c
[ "$(grep -c 'rxmode.offloads.* dev_info.rx_offload_capa;' main.c)" = 2 ]
cd ../..

for name in l2fwd l3fwd; do
    make --silent -C "examples/$name" shared > "$name.log" 2>&1 || { cat "$name.log"; exit 1; }
    install -m 755 "examples/$name/build/$name-shared" "$target/dpdk-$name"
done

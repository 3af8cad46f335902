#!/bin/sh
# Builds DPDK's examples l2fwd and l3fwd into the folder $1 as dpdk-l2fwd and dpdk-l3fwd, from
# Debian's source package of the installed DPDK (libdpdk-dev). Works in the folder $2 and uses what
# debian-sources.sh wrote there. Where TAILTAP_CACHE names a folder, they are kept there.
set -eu
target=$1
work=$2
version=$(dpkg-query -W -f '${source:Version}' libdpdk-dev)
if [ -n "${TAILTAP_CACHE:-}" ]; then
    made_of=$({ cat "$0"; echo "$version"; uname -m; } | sha256sum)
    kept=$TAILTAP_CACHE/dpdk-${made_of%% *}
    if [ -e "$kept" ]; then
        install -m 755 "$kept"/* "$target"
        exit
    fi
fi
mkdir -p "$work/dpdk"
cd "$work/dpdk"
if ! [ -e "dpdk_$version.dsc" ]; then
    rm -rf ./*
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources" \
        -o Dir::State::lists="$work/lists" -o APT::Sandbox::User=root \
        source --download-only "dpdk=$version"
fi
rm -rf examples
tar -xf dpdk_*.orig.tar.xz --strip-components=1 --wildcards \
    '*/examples/l2fwd' '*/examples/l3fwd' '*/examples/common'

# The following commands change the sources in two places. If the sources are not as expected, nothing
# is built.
expect() { # LINES PATTERN FILE: exactly LINES lines of FILE match PATTERN
    [ "$(grep -c "$2" "examples/$3")" = "$1" ] || {
        echo "DPDK $version: examples/$3 is not what $0 can change (pattern: $2)" >&2
        exit 1
    }
}

# The examples hold packets until they have 32 for a port or the drain time of 100 us is over. The
# changed programs read that time from the environment, in ns.
for file in l2fwd/main.c l3fwd/l3fwd.h; do
    sed -i 's|^#define BURST_TX_DRAIN_US 100 .*|#include <stdlib.h>\
#define BURST_TX_DRAIN_US (strtod(getenv("TX_DRAIN_NS") ?: "100000", NULL) / 1000)|' \
        "examples/$file"
    expect 1 '^#define BURST_TX_DRAIN_US (strtod' "$file"
done
# They read it once, before the forwarding loop.
for file in l2fwd/main.c l3fwd/l3fwd_lpm.c; do
    expect 1 'BURST_TX_DRAIN_US;$' "$file"
    expect 1 'const uint64_t drain_tsc = (rte_get_tsc_hz() + US_PER_S - 1)' "$file"
    expect 1 'if (unlikely(diff_tsc > drain_tsc)) {' "$file"
done

# As in later versions, l3fwd asks each port to check only the checksums that the port can check.
# Unchanged, it would refuse ports that the kernel drives.
sed -i -e '/^\t\tif (dev_info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE)/i\
\t\tlocal_port_conf.rxmode.offloads \&= dev_info.rx_offload_capa;' \
    -e 's/rxq_conf.offloads = port_conf.rxmode.offloads;/rxq_conf.offloads = port_conf.rxmode.offloads \& dev_info.rx_offload_capa;/' \
    examples/l3fwd/main.c
expect 2 'rxmode.offloads.* dev_info.rx_offload_capa;' l3fwd/main.c

for name in l2fwd l3fwd; do
    make --silent -C "examples/$name" shared > "$name.log" 2>&1 || { cat "$name.log"; exit 1; }
    install -m 755 "examples/$name/build/$name-shared" "$target/dpdk-$name"
done
if [ -n "${kept:-}" ]; then
    mkdir -p "$kept.part"
    cp "$target/dpdk-l2fwd" "$target/dpdk-l3fwd" "$kept.part"
    mv "$kept.part" "$kept"
fi

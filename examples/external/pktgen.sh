#!/bin/sh
# Lets the kernel's pktgen send UDP packets at a constant rate, and waits for its end.
# Usage: pktgen.sh INTERFACE CPU RATE PACKETS SIZE
set -eu
folder=/proc/net/pktgen
[ -e $folder/pgctrl ] || modprobe pktgen || {
    echo "this kernel has no pktgen (CONFIG_NET_PKTGEN)"
    exit 1
}
thread=$folder/kpktgend_$2
echo rem_device_all > "$thread"
trap 'echo rem_device_all > "$thread"' EXIT
echo "add_device $1" > "$thread"
# Sizes are without the check sequence. Each packet is made anew: a clone would keep its number.
for setting in "count $4" "ratep $3" "pkt_size $(($5 - 4))" "clone_skb 0" "delay 0" \
    "src_mac 02:74:74:00:00:01" "dst_mac 02:74:74:00:00:02" \
    "src_min 10.0.0.1" "src_max 10.0.0.1" "dst_min 10.1.0.1" "dst_max 10.1.0.1" \
    "udp_src_min 1024" "udp_src_max 1024" "udp_dst_min 53" "udp_dst_max 53"; do
    echo "$setting" > "$folder/$1"
done
echo start > $folder/pgctrl # returns when all is sent
grep -A 1 '^Result' "$folder/$1"

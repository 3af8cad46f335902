#!/bin/busybox sh
# Boots a guest: modules, this machine's files under an overlay, then tailtap's agent. Nothing else
# runs in it. `settings`, beside this file, says what is where.
b=/bin/busybox
fail() {
    echo "tailtap: $*"
    $b poweroff -f
}
. /settings
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
for module in $insert; do
    $b insmod "/modules/$module" || fail "the module $module cannot be loaded"
done
# Every port takes every packet, as a port of a switch does: none is for the guest itself.
set -- $links
while [ $# -gt 0 ]; do
    address=$1 name=$2
    shift 2
    for device in /sys/class/net/*; do
        [ "$($b cat "$device/address")" = "$address" ] || continue
        virtio=$($b readlink "$device/device")
        $b ip link set dev "${device##*/}" name "$name"
        $b ip link set dev "$name" mtu "$mtu"
        $b ifconfig "$name" promisc up || fail "the port $name does not come up"
        $b sed -n "s/^ *\([0-9]*\):.* ${virtio##*/}\(-[io][nu].*put.*\|,.*\)\?$/\1/p" \
            /proc/interrupts > /irqs
        while read -r irq; do
            echo "$cpus" > "/proc/irq/$irq/smp_affinity_list" || fail "interrupt $irq stays"
        done < /irqs
        for irq in "/sys/class/net/$name/device/msi_irqs"/*; do  # of a card that is passed through
            irq=/proc/irq/${irq##*/}
            [ ! -e "$irq" ] || echo "$cpus" > "$irq/smp_affinity_list" || fail "$irq stays"
        done
    done
done
options=trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144
$b mount -t 9p -o $options tailtap /host || fail "this machine's files cannot be mounted"
$b mount -t tmpfs -o mode=755 tmpfs /memory
$b mkdir /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root \
    || fail "no overlay on this machine's files"
$b mount -t tmpfs -o mode=755 tmpfs /root/run
$b cp $b /root/run/busybox
for folder in dev proc sys; do $b mount --move /$folder /root/$folder; done
# /lib may be a link: followed from here it would lead out of the new root.
target=/root/usr/lib/modules/$release
$b mkdir -p "$target" /root/dev/pts /root/dev/shm
$b mount -o bind "/root$modules" "$target"
$b mount -t devpts devpts /root/dev/pts
$b mount -t tmpfs tmpfs /root/dev/shm
$b ip link set lo up
for device in /root/sys/class/virtio-ports/*; do
    [ "$($b cat "$device/name")" != "$port" ] || path=/dev/${device##*/}
done
# The agent becomes the last command when nobody wants the guest any more.
exec $b switch_root /root "$python" -I -S -c "$agent" "$path" /run/busybox poweroff -f

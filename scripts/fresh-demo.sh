#!/bin/bash
# Types the README's first commands as a newcomer does, on a fresh Debian 12 with no more than the
# README asks for: a root made by mmdebstrap, and a clone of what is committed here. Says which
# Debian packages that brought, and how long each command took. Run it as root.
# Rust is this machine's, as Debian's is too old; crates and Python packages are fetched anew.
set -euo pipefail
cd "$(dirname "$0")/.."
rust=$(rustc --print sysroot)
work=$(mktemp -d -p /var/tmp tt-fresh-XXXXXX)
root=$work/root
# What is mounted there lives in the namespace of `unshare`, and ends with it.
trap 'rm -rf --one-file-system "$work"' EXIT

mmdebstrap --quiet --variant=minbase --include=git,make,python3,gcc,libc6-dev,sudo,ca-certificates \
    bookworm "$root"
git clone --quiet . "$root/root/tailtap"
mkdir -p "$root/opt/rust"
# Registries are reached as from here.
cp /etc/resolv.conf "$root/etc/resolv.conf"
echo "127.0.0.1 localhost $(hostname)" > "$root/etc/hosts"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

commands=$(awk '/^```sh$/ { block++; on = 1; next } /^```/ { on = 0 } on && block <= 2' README.md)
{
    echo 'installed() { dpkg-query --show --showformat="\${Package}\n" | sort; }'
    echo 'TIMEFORMAT="(%0R s, %0U + %0S s of CPU time)"'
    echo 'cd /root/tailtap; installed > /root/before'
    while IFS= read -r command; do
        printf 'echo %q; time { %s\n} || echo "(exit status $?)"\n' "\$ $command" "$command"
    done <<< "$commands"
    echo 'installed | comm -13 /root/before - > /root/packages'
    echo 'echo "$(wc -l < /root/packages) Debian packages were installed:" $(cat /root/packages)'
} > "$root/root/newcomer"

unshare --mount --propagation private bash -euc '
    mount --bind "$1" "$1" # a root that namespaces can be made in is a mount
    mount --rbind /proc "$1/proc"; mount --rbind /sys "$1/sys"; mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/tmp"; mount -t tmpfs tmpfs "$1/run"
    mount --bind -o ro "$2" "$1/opt/rust"
    exec chroot "$1" env -i HOME=/root TERM=dumb LANG=C.UTF-8 ${PIP_CERT:+PIP_CERT="$PIP_CERT"} \
        PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash /root/newcomer
' bash "$root" "$rust"

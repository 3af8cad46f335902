#!/bin/bash
# Makes the roots of other systems that wheels are tried in: $1/x86_64 has Debian 11, with glibc 2.31
# and a Python 3.11 that is compiled there; $1/aarch64 has Debian 12 and its kernel, as files alone.
set -euo pipefail
folder=$1
mirror=http://deb.debian.org/debian
lab=iproute2,ethtool,kmod,util-linux
rm -rf "$folder"
mkdir -p "$folder"

mmdebstrap --quiet --architectures=arm64 --variant=extract \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --include "dash,coreutils,mount,libstdc++6,python3-venv,linux-image-arm64,$lab" \
    bookworm "$folder/aarch64" "deb $mirror bookworm main"
mkdir -p "$folder"/aarch64/{proc,sys,run,root} # of base-files, which needs many more

builds=gcc,libc6-dev,make,zlib1g-dev,libffi-dev,libssl-dev,liblzma-dev,libbz2-dev
mmdebstrap --quiet --variant=minbase --include "$builds,$lab" bullseye "$folder/x86_64" \
    "deb $mirror bullseye main" "deb-src $mirror bookworm main"
cp /etc/resolv.conf "$folder/x86_64/etc/"
enter='mount --rbind /dev "$1/dev"; mount --rbind /proc "$1/proc"; exec chroot "$1" sh -euc "$2"'
compile='
cd /usr/src
apt-get -qq update
apt-get -qq -o APT::Sandbox::User=root source --download-only python3.11
tar -xf python3.11_*.orig.tar.* --one-top-level=python --strip-components=1
cd python
./configure --disable-test-modules
make -j "$(nproc)" CFLAGS=-O1
make install
rm -r /usr/src/python
'
unshare --mount --propagation private sh -euc "$enter" sh "$folder/x86_64" "$compile" \
    > "$folder/log" 2>&1 || { tail -n 30 "$folder/log"; exit 1; }

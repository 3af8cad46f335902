#!/bin/sh
# Puts a qemu-system-x86_64 that emulates igb cards into the folder $1. That of Debian 12 does not. The
# one of its backports needs no libraries and no firmware but those of the machine's own.
# APT_OPTIONS has options for apt-get, whose lists are there already; see debian-sources.sh.
set -eu
. /etc/os-release
folder=$1
name=qemu-system-x86_64
knows_igb() { # FILE: QEMU says 0 in either case
    "$1" -device igb,help 2>&1 | grep -q '^igb options'
}
rm -rf "$folder"
mkdir -p "$folder/package"
if knows_igb "$name"; then
    ln -s "$(command -v "$name")" "$folder/$name"
else
    # shellcheck disable=SC2086 # several options
    (cd "$folder/package" && apt-get ${APT_OPTIONS:-} -o APT::Sandbox::User=root download \
        "qemu-system-x86/$VERSION_CODENAME-backports")
    dpkg-deb -x "$folder"/package/*.deb "$folder/package"
    mv "$folder/package/usr/bin/$name" "$folder/$name"
    knows_igb "$folder/$name"
fi
rm -r "$folder/package"

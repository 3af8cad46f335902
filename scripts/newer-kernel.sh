#!/bin/sh
# Puts the newest kernel that Debian has for a stable release into the folder $1, unpacked and not
# installed: boot/vmlinuz-VERSION, and its modules below lib/. Debian 12 has none that is newer than
# 6.12. Comes from this machine's mirror of Debian.
set -eu
folder=$1
release=trixie-backports
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/sources"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' | head -n 1)
echo "deb $mirror $release main" > "$folder/apt/sources/newer.list"
set -- -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/apt/sources" \
    -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt" \
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root
apt-get "$@" update
version=$(apt-cache "$@" depends --important "linux-image-amd64/$release" \
    | sed -n 's/.*Depends: linux-image-\([0-9]\)/\1/p' | head -n 1)
cd "$folder/apt"
# The package of that name has nothing in it but what it depends on.
for part in base binary modules; do apt-get "$@" download "linux-$part-$version/$release"; done
for package in ./*.deb; do dpkg-deb -x "$package" "$folder"; done
mkdir -p "$folder/boot" "$folder/lib"
mv "$folder/usr/lib/modules" "$folder/lib/modules"
mv "$folder/lib/modules/$version/vmlinuz" "$folder/boot/vmlinuz-$version"
depmod -b "$folder" "$version"
rm -r "$folder/apt" "$folder/usr"

#!/bin/sh
# Writes into the folder $1 where this machine gets Debian from, with the sources of the packages
# and the backports of its release added: the forwarders need both, and most machines name neither.
# Of the backports, Suricata and its library count as much as the release's own packages, of which
# Debian 12 has none. Nothing in /etc/apt changes, and no address is ours: mirrors and keys stay the
# machine's own. See APT_OWN in the Makefile for apt-get's options.
set -eu
. /etc/os-release
mkdir -p "$1/sources" "$1/lists/partial"
printf 'Package: suricata libhtp2\nPin: release n=%s-backports\nPin-Priority: 500\n' \
    "$VERSION_CODENAME" > "$1/preferences"

# deb [options] ADDRESS RELEASE COMPONENT…
cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | awk -v release="$VERSION_CODENAME" '
    $1 == "deb" {
        print
        if (index($0, " " release " ")) {
            for (line = 1; line <= 2; line++) {
                text = $0
                if (line == 1) sub(/^deb/, "deb-src", text)
                else sub(" " release " ", " " release "-backports ", text)
                print text
            }
        }
    }' > "$1/sources/tailtap.list"

# The same as paragraphs of fields.
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || { cat "$file"; echo; }
done | awk -v release="$VERSION_CODENAME" '
    BEGIN { RS = ""; ORS = "\n\n"; FS = "\n" }
    {
        ours = 0
        for (line = 1; line <= NF; line++)
            if ($line ~ /^Suites:/ && ($line " ") ~ ("[ \t]" release "[ \t]")) ours = 1
        text = ""
        for (line = 1; line <= NF; line++) {
            if (ours && $line ~ /^Types:/) $line = "Types: deb deb-src"
            if (ours && $line ~ /^Suites:/) $line = $line " " release "-backports"
            text = text $line (line < NF ? "\n" : "")
        }
        print text
    }' > "$1/sources/tailtap.sources"

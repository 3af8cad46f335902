#!/bin/sh
# Writes this machine's apt sources into the folder $1, and adds source packages and the backports of
# its release. The forwarders need both, and most machines have neither. Suricata and its library get
# the same priority from the backports as the release's own packages, of which Debian 12 has none.
# Nothing in /etc/apt changes. Mirrors and keys stay the machine's own. APT_OWN in the Makefile has the
# options for apt-get.
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

# The same for sources in the deb822 format.
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

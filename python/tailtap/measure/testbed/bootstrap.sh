# What a far host's shell runs first: it takes in our program, and becomes it.
#
# It says in a line of JSON what the host has; $1 is the interpreter there. Its input is the program's
# folder, in a line. Where it answers that there is none, a line with the length and the SHA-256 of an
# archive follows, and that archive, which is answered as well. The last line is the module to run
# with its arguments, and what comes then is for the program. A program that brings its own
# interpreter is run by that one.
python=$1
tell_version='import sys; print("%d.%d" % sys.version_info[:2])'

fail() {
    echo "$1" >&2
    exit 1
}

keep() {
    umask 022
    mkdir -p "${folder%/*}" && draft=$(mktemp -d "$folder.XXXXXX") || exit
    trap 'rm -rf "$draft"' EXIT
    head -c "$1" >"$draft/archive" || exit
    if [ "$(sha256sum <"$draft/archive")" != "$2  -" ]; then
        echo "it did not arrive whole"
        exit 1
    fi
    mkdir "$draft/program" && tar -xzf "$draft/archive" -C "$draft/program" || exit
    # Another one may have been faster.
    [ -d "$folder" ] || mv -T "$draft/program" "$folder" || [ -d "$folder" ]
}

printf '{"python": "%s", "libc": "%s", "machine": "%s"}\n' \
    "$("$python" -I -S -c "$tell_version" </dev/null 2>/dev/null)" \
    "$(getconf GNU_LIBC_VERSION 2>/dev/null)" "$(uname -m)"
read -r folder || fail "the controller has gone"
if [ ! -d "$folder" ]; then
    echo '{"there": false}'
    read -r length checksum || fail "the controller has gone"
    said=$(keep "$length" "$checksum" 2>&1) || fail "cannot keep the program in $folder: ${said##*: }"
fi
echo '{"there": true}'
read -r run || fail "the controller has gone"
[ ! -x "$folder/runtime/bin/python3" ] || python=$folder/runtime/bin/python3
# The PATH of a user has no programs of root's, and sudo may leave it so.
export PYTHONPATH="$folder" PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
exec "$python" -P -m $run

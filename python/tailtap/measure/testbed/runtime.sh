#!/bin/sh
# An interpreter with its own C library, whatever that of the host is. It takes itself, and what it
# starts takes it, for this file.
here=${0%/bin/*}
exec "$here/loader/python3" --argv0 "$0" --library-path "$here/libraries" "$here/interpreter" "$@"

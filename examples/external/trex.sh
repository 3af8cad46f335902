#!/bin/sh
# Starts a TRex server on one interface of the kernel, or on the PCI addresses of two cards, lets
# trex.py send, and stops the server.
# Usage: TREX=FOLDER trex.sh INTERFACE|PCI RATE PACKETS SIZE [PCI]
set -eu
here=$(dirname "$(realpath "$0")")
config=$(mktemp)
# Ports come in pairs; the second one is nobody. One core sends, so that ids count up.
cat > "$config" <<END
- version: 2
  port_limit: 2
  low_end: true
  prefix: tt-trex
  interfaces: ["$1", "${5-dummy}"]
  port_info:
    - {src_mac: "02:74:74:00:00:01", dest_mac: "02:74:74:00:00:02"}
    - {src_mac: "02:74:74:00:00:02", dest_mac: "02:74:74:00:00:01"}
END
cd "$TREX"
./t-rex-64 -i -c 1 --cfg "$config" &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait "$server" || true; rm -f "$config"' EXIT
sleep 10 # it takes some seconds until it listens
PYTHONPATH="$TREX/automation/trex_control_plane/interactive" \
    python3 "$here/trex.py" "$2" "$3" "$4"

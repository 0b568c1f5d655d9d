#!/bin/sh
# TAP: who includes whom.
echo 1..1
if "$top_srcdir/scripts/check-layers" >&2; then echo "ok 1 - layers"; else echo "not ok 1 - layers"; fi

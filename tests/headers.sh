#!/bin/sh
# TAP: every header compiles alone.
echo 1..1
if "$top_srcdir/scripts/check-headers" "$top_builddir" >&2; then echo "ok 1 - headers"; else echo "not ok 1 - headers"; fi

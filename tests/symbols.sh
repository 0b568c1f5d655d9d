#!/bin/sh
# TAP: libbrook exports what its headers declare, and nothing else.
echo 1..3
cd "$top_builddir" || exit 1
map="$top_srcdir/client/libbrook.map"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
sed -n 's/^ *\(brook_[a-z0-9_]*\);$/\1/p' "$map" | sort > "$work/map"
# Declarations: comments and typedefs out, then every name in front of a parenthesis.
cat "$top_srcdir"/client/include/brook/*.h "$top_srcdir"/proto/base/err.h |
    sed 's|/\*.*\*/||g; /\/\*/,/\*\//d; /^typedef/d; /^#/d' |
    grep -oE '(^|[ *])brook_[a-z0-9_]+\(' | tr -d ' *(' | sort -u > "$work/headers"
nm -D --defined-only client/.libs/libbrook.so | awk '$2 ~ /[TDBR]/ {print $3}' | sed 's/@.*//' | sort -u > "$work/exported"

same() { # number, text, files
    if diff "$3" "$4" >&2; then echo "ok $1 - $2"; else echo "not ok $1 - $2"; fi
}
same 1 "the map lists the functions of the headers" "$work/headers" "$work/map"
comm -13 "$work/map" "$work/exported" > "$work/extra"
comm -23 "$work/map" "$work/exported" > "$work/missing"
same 2 "nothing else is exported" /dev/null "$work/extra"
same 3 "everything in the map is there" /dev/null "$work/missing"

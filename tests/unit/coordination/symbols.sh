#!/usr/bin/env bash
# What of the ZooKeeper library must not be used: its synchronous calls block, and some others are broken in the
# version that distributions have. And nobody but coordination/ calls it at all.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
n=0
result() { n=$((n + 1)); echo "$1 $n - $2"; }

archive=$top_builddir/coordination/.libs/libcoordination.a
used=$(nm -u "$archive" 2>/dev/null | awk '{print $2}' | grep -E '^(zoo|zookeeper)_' | sort -u)
[ -n "$used" ] && result ok "the archive uses the library" || result "not ok" "the archive uses the library"

forbidden='^zoo_(create|create2|delete|exists|wexists|get|wget|set|set2|get_children|wget_children|get_children2|wget_children2|sync|get_acl|set_acl|multi|reconfig|remove_watches|remove_all_watches)$|^zoo_(set_servers|acreate2|acreate2_ttl|create2_op_init|add_auth|set_log_stream|get_current_server)$'
bad=$(echo "$used" | grep -E "$forbidden")
if [ -z "$bad" ]; then
    result ok "no synchronous or broken call is used"
else
    echo "# used: $bad" >&2
    result "not ok" "no synchronous or broken call is used"
fi

if grep -rnE 'ZOO_READONLY|define THREADED|zookeeper_mt' "$top_srcdir/coordination" --include='*.[ch]' >&2; then
    result "not ok" "neither read-only mode nor threads are asked for"
else
    result ok "neither read-only mode nor threads are asked for"
fi
echo "1..$n"

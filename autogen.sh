#!/bin/sh
# Make ./configure from configure.ac. Debian: autoconf automake libtool pkg-config.
set -e
cd "$(dirname "$0")"
mkdir -p m4
exec autoreconf --install --warnings=all

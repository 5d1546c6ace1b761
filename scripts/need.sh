#!/bin/sh
# need.sh COMMAND[=MAJOR]... makes sure that commands exist, MAJOR being the
# lowest major version that will do.
#
# On Debian, as root, what is missing is installed. Anywhere else the script
# installs nothing: it names everything that is missing, says how to get it, and
# fails, so that nobody's machine is changed behind their back.
set -eu

# debian_packages COMMAND prints the Debian packages that bring a command.
debian_packages() {
	case $1 in
	cc) echo gcc libc6-dev ;;
	node) echo nodejs ;;
	redis-cli) echo redis-tools ;;
	*) echo "$1" ;; # most are named like their command
	esac
}

# what_for COMMAND prints why the tests want it, and where else to get it.
what_for() {
	case $1 in
	cc) echo "a C compiler, for the race detector (Debian: gcc libc6-dev; macOS: xcode-select --install)" ;;
	node) echo "Node.js, which runs the DynamoDB-compatible test server and the validator of templates (https://nodejs.org)" ;;
	npm) echo "npm, which fetches these two (it comes with Node.js)" ;;
	redis-server | redis-cli | redis-sentinel) echo "$1, on which the Redis store is tested (Debian: apt-get install redis-server redis-sentinel; macOS: brew install redis)" ;;
	*) echo "$1 (Debian: apt-get install $(debian_packages "$1"))" ;;
	esac
}

# present COMMAND[=MAJOR]
present() {
	command -v "${1%%=*}" >/dev/null 2>&1 || return 1
	case $1 in
	*=*)
		major=$("${1%%=*}" --version 2>/dev/null | sed -n '1s/^[^0-9]*\([0-9][0-9]*\).*/\1/p')
		[ "${major:-0}" -ge "${1#*=}" ]
		;;
	esac
}

# missing COMMAND[=MAJOR]... prints those that are not there.
missing() {
	for need in "$@"; do
		present "$need" || echo "$need"
	done
}

lacking=$(missing "$@")
[ -n "$lacking" ] || exit 0

if [ -f /etc/debian_version ] && [ "$(id -u)" -eq 0 ]; then
	packages=
	for need in $lacking; do
		packages="$packages $(debian_packages "${need%%=*}")"
	done
	echo "need: installing$packages" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq >&2 || true
	# shellcheck disable=SC2086 # a list of package names
	apt-get install -y -qq --no-install-recommends $packages >&2 || true
	lacking=$(missing "$@")
	[ -n "$lacking" ] || exit 0
	echo "need: still missing after the installation:" >&2
else
	echo "need: missing on this machine:" >&2
fi

for need in $lacking; do
	name=${need%%=*}
	case $need in
	*=*) version=", version ${need#*=} or newer" ;;
	*) version= ;;
	esac
	if command -v "$name" >/dev/null 2>&1; then
		version="$version (found: $("$name" --version 2>/dev/null | sed -n 1p))"
	fi
	echo "  $name$version: $(what_for "$name")" >&2
done
echo "need: install the above and run the command again. On Debian, as root, make test does it by itself." >&2
exit 1

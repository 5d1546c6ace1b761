#!/bin/sh
# setup.sh brings what the tests need and a clone does not hold. A test starts
# its servers itself; this only makes sure that they are there.
set -eu
cd "$(dirname "$0")/.."

if ! command -v go >/dev/null 2>&1; then
	echo "setup: Go is missing: install version $(sed -n 's/^go //p' go.work) or newer from https://go.dev/dl" >&2
	exit 1
fi

# Add a command here when a test starts to use it, for example chromium, and
# never before.
scripts/need.sh cc node=20 npm redis-server redis-cli redis-sentinel

# The npm packages: the DynamoDB-compatible test server, and AWS's validator of
# templates. npm writes its own lock file last, so a copy that is not older than
# ours is a finished installation.
for dir in internal/dynalite internal/awscheck; do
	installed=$dir/node_modules/.package-lock.json
	if [ ! -f "$dir/package-lock.json" ]; then
		echo "setup: $dir/package-lock.json is missing: restore it (git checkout $dir)" >&2
		exit 1
	fi
	if [ ! -f "$installed" ] || [ -n "$(find "$dir/package-lock.json" "$dir/package.json" -newer "$installed")" ]; then
		echo "setup: npm ci in $dir" >&2
		(cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund >&2)
	fi
done

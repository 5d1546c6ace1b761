#!/bin/sh
# check.sh looks at the sources without running them: format, vet, tidy modules,
# their checksums and staticcheck, for every module of go.work. It goes on after a finding, so
# that one run shows them all, and exits 1 if there was any.
set -eu
cd "$(dirname "$0")/.."

# Run by version and never required by a go.mod: whoever imports weir must not
# inherit a linter.
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

failed=
# step NAME REMEDY COMMAND... runs a command and notes its failure.
step() {
	what=$1 remedy=$2
	shift 2
	echo "check: $what" >&2
	if ! "$@"; then
		echo "check: $what found something. $remedy" >&2
		failed=1
	fi
}

# formatted lists the files that gofmt would change, and fails if there are any.
formatted() {
	files=$(find . \( -name node_modules -o -name .git \) -prune -o -name '*.go' -exec gofmt -l {} +) || return 1
	[ -z "$files" ] || { echo "$files"; return 1; }
}

step gofmt "Run: gofmt -w on the files named above." formatted

# complete reports whether the checksums of the workspace are all there. Where some
# are missing, commands that only read would write them into everybody's clone.
complete() {
	before=$(cksum go.work.sum) && go mod download && go list -m all >/dev/null && [ "$before" = "$(cksum go.work.sum)" ]
}

step go.work.sum "Commit go.work.sum as it is now." complete

for module in $(go list -m); do
	dir=$(go list -m -f '{{.Dir}}' "$module")
	# Without the workspace: as who imports the module sees it, with the versions
	# and the checksums of its own go.mod and go.sum.
	step "go vet $module" "Correct the lines named above." env GOWORK=off go -C "$dir" vet ./...
	step "go vet $module for 32 bits" "Correct the lines named above: an int holds less there." env GOWORK=off GOARCH=386 go -C "$dir" vet ./...
	step "go mod tidy $module" "Run: (cd $dir && go mod tidy)." env GOWORK=off go -C "$dir" mod tidy -diff
	step "staticcheck $module" "Correct the lines named above." sh -c 'cd "$1" && go run "$2" ./...' sh "$dir" "$staticcheck"
done

[ -z "$failed" ]

#!/bin/sh
# cover.sh runs the tests of every module of go.work with coverage, writes the
# profile cover.out and prints the share of statements covered, per package and
# in all. Open the profile with: go tool cover -html=cover.out
set -eu
cd "$(dirname "$0")/.."

# shellcheck disable=SC2046 # a list of patterns
go run ./internal/testreport go test -json -coverprofile=cover.out $(go list -m -f '{{.Dir}}/...')
go tool cover -func=cover.out | tail -n 1

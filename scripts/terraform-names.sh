#!/bin/sh
# terraform-names.sh writes anew which names Terraform's AWS provider has, from the
# oldest version that the generated text allows and a newer one. The packages are
# 70 MB together and are not kept.
set -eu
cd "$(dirname "$0")/.."
scripts/need.sh npm

oldest=19.46.0 # of the provider's 5.80.0
newest=21.22.1 # of 6.25.0
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
npm pack --silent --pack-destination "$packages" "@cdktf/provider-aws@$oldest" "@cdktf/provider-aws@$newest" >&2
names=cmd/weir/internal/generate/testdata/terraform-names.txt
go run ./cmd/weir/internal/generate/terraformnames \
	"$packages/cdktf-provider-aws-$oldest.tgz" "$packages/cdktf-provider-aws-$newest.tgz" >"$packages/names"
mv "$packages/names" "$names"

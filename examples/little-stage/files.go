// Package littlestage holds the example policy of the Little Stage ticket shop,
// so that the program can play it where the repository is not at hand.
package littlestage

import "embed"

// Files are weir.yaml and the partners.keys that it names.
//
//go:embed weir.yaml partners.keys
var Files embed.FS

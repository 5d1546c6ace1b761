// Package nesting bounds how deep YAML may be nested before a parser sees it: what the
// parser needs grows with the square of the depth, 4 MB at 1,000 levels and gigabytes at
// 40,000.
package nesting

import "github.com/goccy/go-yaml/token"

// Max is how many levels there may be.
const Max = 1000

// TooDeep is the first line, from 1 on, of a text whose tokens nest deeper than [Max], by
// brackets or by indentation, which each level needs one character of; 0 for none.
func TooDeep(tokens token.Tokens) (line int) {
	brackets, last := 0, 0
	for _, t := range tokens {
		first := t.Position.Line > last
		last = t.Position.Line
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			first = true
		}
		if brackets > Max || first && t.Position.Column > Max {
			return t.Position.Line
		}
	}
	return 0
}

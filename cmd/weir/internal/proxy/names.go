package proxy

import "strings"

// Forged reports whether a header of this name, arriving from a client, is one
// that upstreams take as a proxy's word: Weir-*, Forwarded, X-Forwarded-*,
// X-Real-IP, True-Client-IP, CF-Connecting-IP, X-Original-URL and
// X-Rewrite-URL. Case does not matter, and `_` counts as `-`, because CGI and
// its heirs read both as the same variable.
func Forged(name string) bool {
	n := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	switch n {
	case "forwarded", "x-real-ip", "true-client-ip", "cf-connecting-ip", "x-original-url", "x-rewrite-url":
		return true
	}
	return strings.HasPrefix(n, "weir-") || strings.HasPrefix(n, "x-forwarded-")
}

// trailerPasses reports whether a field may be forwarded as a trailer. RFC
// 9110, section 6.5.1, keeps framing, routing, authentication and content
// fields out of trailers: a server that merges them would be fooled.
func trailerPasses(name string) bool {
	if Forged(name) {
		return false
	}
	switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
	case "transfer-encoding", "content-length", "trailer", "host", "te", "connection", "keep-alive", "upgrade",
		"proxy-connection", "proxy-authorization", "proxy-authenticate", "authorization", "cookie", "set-cookie",
		"content-encoding", "content-type", "content-range", "cache-control", "expect", "max-forwards", "range":
		return false
	}
	return true
}

// encodeIllegal percent-encodes, one by one, the bytes of raw that a URL may
// not hold, and leaves every other byte and every escape as it came. When raw
// is empty the URL was in its standard form already, and std is that form.
func encodeIllegal(std, raw string) string {
	if raw == "" {
		raw = std
	}
	illegal := 0
	for i := range len(raw) {
		if !legalInURL(raw[i]) {
			illegal++
		}
	}
	if illegal == 0 {
		return raw
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(raw)+2*illegal)
	for i := range len(raw) {
		if c := raw[i]; legalInURL(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

// legalInURL holds for the unreserved and reserved characters of RFC 3986 and
// for the percent sign. A fragment has no place in a request, so `#` is not
// legal here.
func legalInURL(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-._~:/?[]@!$&'()*+,;=%", c) >= 0
}

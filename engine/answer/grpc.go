package answer

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/policy"
)

// Codes of gRPC that weir answers with or judges by.
const (
	grpcInvalidArgument    = 3
	grpcPermissionDenied   = 7
	grpcResourceExhausted  = 8
	grpcUnimplemented      = 12
	grpcUnavailable        = 14
	grpcUnauthenticated    = 16
	grpcContentType        = "application/grpc"
	fieldGRPCStatus        = "Grpc-Status"
	fieldGRPCMessage       = "Grpc-Message"
	fieldGRPCDetails       = "Grpc-Status-Details-Bin"
	fieldGRPCRetryPushback = "Grpc-Retry-Pushback-Ms"
)

// IsGRPC reports whether a content type is that of gRPC over HTTP/2, in any
// case, as media types are. gRPC-Web is not: its clients read the HTTP status.
func IsGRPC(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.TrimSpace(kind)
	n := len(grpcContentType)
	return len(kind) >= n && strings.EqualFold(kind[:n], grpcContentType) && (len(kind) == n || kind[n] == '+')
}

func isGRPC(a *policy.Attributes) bool {
	t := a.Header["Content-Type"]
	return len(t) == 1 && IsGRPC(t[0])
}

// trailersOnly is a refusal as gRPC clients understand it: HTTP 200, and the
// status where a trailer would be, in the one header block that ends the call.
func trailersOnly(h http.Header, o *engine.Outcome, message string) Response {
	code := grpcUnavailable
	switch o.Status {
	case http.StatusTooManyRequests:
		code = grpcResourceExhausted
	case http.StatusBadRequest:
		code = grpcInvalidArgument
	case http.StatusUnauthorized:
		code = grpcUnauthenticated
	case http.StatusForbidden:
		code = grpcPermissionDenied
	case http.StatusMethodNotAllowed:
		code = grpcUnimplemented
	}
	h["Content-Type"] = []string{grpcContentType}
	h[fieldGRPCStatus] = []string{strconv.Itoa(code)}
	h[fieldGRPCMessage] = []string{percent(message)}
	if v := o.Speaks(); v != nil {
		// A client with a retry policy waits so long; below 0 it gives up.
		pushback := "-1"
		if seconds, ok := RetryAfter(&v.Decision); ok {
			pushback = strconv.FormatInt(seconds*1000, 10)
		}
		h[fieldGRPCRetryPushback] = []string{pushback}
		if o.Limited() {
			h[fieldGRPCDetails] = []string{statusDetails(code, message, v)}
		}
	}
	return Response{Status: http.StatusOK, Header: h}
}

// percent encodes a message as the gRPC protocol wants it: printable ASCII but
// for the percent sign stands for itself.
func percent(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// StatusOfGRPC is the HTTP status that stands for a call's grpc-status, by the
// table of google.rpc.Code, so that one success range judges both. What is not
// a number is an unknown error, 500.
func StatusOfGRPC(code string) int {
	n, err := strconv.Atoi(code)
	if err != nil || n < 0 || n >= len(grpcToHTTP) {
		return http.StatusInternalServerError
	}
	return grpcToHTTP[n]
}

// In the order of the codes, OK to UNAUTHENTICATED.
var grpcToHTTP = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

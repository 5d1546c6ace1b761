package answer

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
)

// The details of a gRPC status are protocol buffers. The three small messages
// that a refusal needs are written here by hand, so that the library does not
// make its importers take a protobuf runtime.
//
//	google.rpc.Status           {int32 code = 1; string message = 2; repeated Any details = 3}
//	google.protobuf.Any         {string type_url = 1; bytes value = 2}
//	google.rpc.RetryInfo        {Duration retry_delay = 1}
//	google.protobuf.Duration    {int64 seconds = 1}
//	google.rpc.QuotaFailure     {repeated Violation violations = 1}
//	google.rpc.QuotaFailure.Violation {string subject = 1; string description = 2}

const (
	typeRetryInfo    = "type.googleapis.com/google.rpc.RetryInfo"
	typeQuotaFailure = "type.googleapis.com/google.rpc.QuotaFailure"
)

// statusDetails is the value of grpc-status-details-bin. It tells clients why
// they were refused, and so a quota from a message that was too large, which has
// the same code, and when to come back.
func statusDetails(code int, message string, v *engine.Verdict) string {
	status := appendInt(nil, 1, uint64(code))
	status = appendBytes(status, 2, []byte(message))
	if seconds, ok := RetryAfter(&v.Decision); ok {
		status = appendBytes(status, 3, packed(typeRetryInfo, appendBytes(nil, 1, appendInt(nil, 1, uint64(seconds)))))
	}
	if v.Reason != weir.ReasonUnavailable { // whether a quota failed is not known then
		violation := appendBytes(nil, 1, []byte(v.Limit.Name()))
		violation = appendBytes(violation, 2, []byte(message))
		status = appendBytes(status, 3, packed(typeQuotaFailure, appendBytes(nil, 1, violation)))
	}
	return base64.RawStdEncoding.EncodeToString(status)
}

func packed(url string, message []byte) []byte {
	return appendBytes(appendBytes(nil, 1, []byte(url)), 2, message)
}

func appendInt(b []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3), v)
}

func appendBytes(b []byte, field int, v []byte) []byte {
	b = binary.AppendUvarint(b, uint64(field)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

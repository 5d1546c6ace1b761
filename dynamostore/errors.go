package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weirlabs/weir"
)

// signatureTolerance is how wrong a clock may be before AWS may refuse what it
// has signed.
const signatureTolerance = 4 * time.Minute

// errorf makes an error that names the table. Keys of items are callers' names
// and stay out of errors.
func (s *Store) errorf(what, format string, args ...any) error {
	return fmt.Errorf("dynamodb table %q: %s: %w", s.table, what, fmt.Errorf(format, args...))
}

// explain turns the SDK's error into one that says what to do. It wraps the
// SDK's, [weir.ErrThrottled] when DynamoDB refused this one key, and
// [weir.ErrUnreachable] when no connection could be made, so that nothing was sent.
func (s *Store) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return s.errorf(what, "there is no such table; create it with: weir store create --store '%s' (%w)", s.url(), err)
	}
	if reasons, throttled := throttling(err); throttled {
		if ofKey(err, reasons) {
			return s.errorf(what, "%w: one item takes at most about 1,000 write units a second (%w)", weir.ErrThrottled, err)
		}
		return s.errorf(what, "the table's or the account's throughput is used up%s; raise it, or use on-demand capacity (%w)", because(reasons), err)
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "AccessDeniedException":
			return s.errorf(what, "access denied; deciding needs %s on this table (%w)", strings.Join(Definition().Actions, " and "), err)
		case "UnrecognizedClientException", "InvalidSignatureException", "SignatureDoesNotMatch", "MissingAuthenticationTokenException",
			"ExpiredTokenException", "RequestExpired", "RequestTimeTooSkewed", "AuthFailure":
			if skew := s.Skew(); skew.Abs() > signatureTolerance {
				return s.errorf(what, "the signature is not accepted, since this machine's clock is off: DynamoDB's is ahead by %v; set the clock (%w)", skew.Round(time.Second), err)
			}
			return s.errorf(what, "the credentials are not accepted; check that they are valid and of the right account (%w)", err)
		case "ValidationException":
			return s.errorf(what, "DynamoDB does not accept the request; if the table was not made by weir, look at it with: weir store check --store '%s' (%w)", s.url(), err)
		}
	}
	if dialing(err) {
		return s.errorf(what, "%w: no connection; is the endpoint right, and reachable from here? (%w)", weir.ErrUnreachable, err)
	}
	return s.errorf(what, "%w", err)
}

// dialing reports whether an error is from before there was a connection.
func dialing(err error) bool {
	var dial *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &dns)
}

// explainWrite is explain for a call that changes something: it also wraps
// [weir.ErrOutcomeUnknown] when the change may have happened.
func (s *Store) explainWrite(what string, err error) error {
	explained := s.explain(what, err)
	if explained != nil && outcomeUnknown(err) {
		return fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, explained)
	}
	return explained
}

// outcomeUnknown reports whether a write that ended in this error may have been
// applied. It is sure that it was not when DynamoDB answered with a refusal, or
// when nothing could be sent.
func outcomeUnknown(err error) bool {
	if dialing(err) {
		return false
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		if code := answer.HTTPStatusCode(); code >= 500 {
			return true // the router may fail after the storage has written
		} else if code >= 400 {
			return false
		}
		return true // a success that could not be read
	}
	var send *smithyhttp.RequestSendError
	var broken *smithy.DeserializationError
	return errors.As(err, &send) || errors.As(err, &broken) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || isCanceled(err)
}

func isCanceled(err error) bool {
	var e *smithy.CanceledError
	return errors.As(err, &e)
}

// throttling tells whether an error is a refusal for want of throughput, and
// DynamoDB's reasons, which older servers leave out.
func throttling(err error) ([]types.ThrottlingReason, bool) {
	var provisioned *types.ProvisionedThroughputExceededException
	var limit *types.RequestLimitExceeded
	var throttled *types.ThrottlingException
	switch {
	case errors.As(err, &provisioned):
		return provisioned.ThrottlingReasons, true
	case errors.As(err, &limit):
		return limit.ThrottlingReasons, true
	case errors.As(err, &throttled):
		return throttled.ThrottlingReasons, true
	}
	return nil, false
}

// ofKey reports whether the throttling is of one key. Without reasons it is
// taken to be, except for the account's limit: a table on demand has no other.
func ofKey(err error, reasons []types.ThrottlingReason) bool {
	if len(reasons) == 0 {
		var account *types.RequestLimitExceeded
		return !errors.As(err, &account)
	}
	for _, r := range reasons {
		if r.Reason != nil && strings.HasSuffix(*r.Reason, "KeyRangeThroughputExceeded") {
			return true
		}
	}
	return false
}

func because(reasons []types.ThrottlingReason) string {
	var names []string
	for _, r := range reasons {
		if r.Reason != nil {
			names = append(names, *r.Reason)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

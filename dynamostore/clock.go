package dynamostore

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// tolerance is how wrong a clock may be before it is corrected. The Date of a
// reply has a resolution of one second, so less could not be told from noise.
const tolerance = 2 * time.Second

// agreeing is how many replies in a row must agree before a clock is corrected:
// a single odd Date, such as that of a stale copy, moves nothing.
const agreeing = 3

// clock is the caller's, corrected by what DynamoDB's replies say.
type clock struct {
	local   func() int64
	correct bool

	offset   atomic.Int64 // ns that are added to local
	measured atomic.Int64 // ns by which the server was ahead at the last reply

	mu    sync.Mutex
	lead  int64 // that the last replies agreed upon, against offset
	count int
}

func (c *clock) now() int64 { return c.local() + c.offset.Load() }

// observe learns from one reply, or from the reply inside an error. sent is
// local's time before the request went out.
func (c *clock) observe(md middleware.Metadata, err error, sent int64) {
	date, ok := serverTime(md, err)
	if !ok {
		return
	}
	received := c.local()
	if received < sent || received-sent > int64(time.Minute) {
		return // the clock was set meanwhile, or the reply is too old to tell
	}
	// The server wrote its whole second somewhere between sent and received, so
	// its lead lies between these two.
	low := date.UnixNano() - received
	high := date.UnixNano() + int64(time.Second) - sent
	lead := low + (high-low)/2
	c.measured.Store(lead)
	if c.correct {
		c.adjust(low, high, lead)
	}
}

// adjust changes the offset when several replies in a row exclude it, and agree
// on another. What they do not exclude stays, so that now does not flicker.
func (c *clock) adjust(low, high, lead int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset := c.offset.Load(); offset >= low-int64(tolerance) && offset <= high+int64(tolerance) {
		c.count = 0
		return
	}
	if c.count == 0 || c.lead < low-int64(tolerance) || c.lead > high+int64(tolerance) {
		c.lead, c.count = lead, 0
	}
	if c.count++; c.count < agreeing {
		return
	}
	c.count = 0
	if lead > -int64(tolerance) && lead < int64(tolerance) {
		lead = 0
	}
	c.offset.Store(lead)
}

// serverTime is the Date of a reply. A reply with an Age came from a cache, and
// its Date is old.
func serverTime(md middleware.Metadata, err error) (time.Time, bool) {
	raw, _ := awsmiddleware.GetRawResponse(md).(*smithyhttp.Response)
	var e *smithyhttp.ResponseError
	if errors.As(err, &e) {
		raw = e.Response
	}
	if raw == nil || raw.Response == nil || raw.Header.Get("Age") != "" {
		return time.Time{}, false
	}
	date, err := http.ParseTime(raw.Header.Get("Date"))
	return date, err == nil
}

// Package logs reads log files line by line: plain or compressed with gzip, in
// one pass, in bounded memory. Half a line after a crash, or one that another
// program wrote, is counted as bad and passed over, never guessed at.
package logs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxLine is how long a line may be, in bytes. Those of AWS WAF hold a request's
// header, which may have some 64 KB.
const MaxLine = 1 << 20

// Count is what can be said of a log's lines. Empty lines are none.
type Count struct {
	Lines    int64 // bad ones included
	Bad      int64
	FirstBad int64  // the number of the first of those in its file, from 1; 0 without any
	Why      string // what is wrong with it
	Cut      bool   // a compressed log ends before its end: what follows is lost
}

// Add joins the counts of several logs. FirstBad and Why are those of the first
// that has any.
func (c *Count) Add(o Count) {
	if c.FirstBad == 0 {
		c.FirstBad, c.Why = o.FirstBad, o.Why
	}
	c.Cut = c.Cut || o.Cut
	c.Lines += o.Lines
	c.Bad += o.Bad
}

// ReadFile reads a file, or standard input for "-". The error names the file.
func ReadFile(ctx context.Context, path string, each func(line []byte) (why string, err error)) (Count, error) {
	if path == "-" {
		return Read(ctx, os.Stdin, each)
	}
	f, err := os.Open(path)
	if err != nil {
		return Count{}, fmt.Errorf("the log cannot be read: %w", err)
	}
	defer f.Close()
	return Read(ctx, f, each)
}

// Read gives every line to each, without its end and without space around it.
// each must not keep the line. It says why a line is bad, or "". An error of its
// own, or the context's, ends the reading and is returned as it is.
func Read(ctx context.Context, from io.Reader, each func(line []byte) (why string, err error)) (c Count, err error) {
	in := bufio.NewReaderSize(from, MaxLine)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			c.bad(1, "it begins like a compressed file, and is none")
			return c, nil
		}
		in = bufio.NewReaderSize(z, MaxLine)
	}
	for n := int64(1); ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return c, ctx.Err()
		}
		line, why, end := next(in)
		switch line = bytes.TrimSpace(line); {
		case why != "":
			c.bad(n, why)
		case len(line) > 0:
			why, err := each(line)
			if err != nil {
				return c, err
			}
			if why != "" {
				c.bad(n, why)
				break
			}
			c.Lines++
		}
		switch {
		case end == nil:
		case errors.Is(end, io.EOF):
			return c, nil
		case errors.Is(end, io.ErrUnexpectedEOF), errors.Is(end, gzip.ErrChecksum), errors.Is(end, gzip.ErrHeader):
			c.Cut = true
			return c, nil
		default:
			return c, fmt.Errorf("the log cannot be read to its end: %w", end)
		}
	}
}

func (c *Count) bad(n int64, why string) {
	c.Lines++
	if c.Bad++; c.FirstBad == 0 {
		c.FirstBad, c.Why = n, why
	}
}

// next gives a line, or says why it is none. end is set with the last one.
func next(in *bufio.Reader) (line []byte, why string, end error) {
	line, end = in.ReadSlice('\n')
	if errors.Is(end, bufio.ErrBufferFull) {
		why = fmt.Sprintf("it is longer than %d bytes", MaxLine)
	}
	for errors.Is(end, bufio.ErrBufferFull) {
		line, end = in.ReadSlice('\n')
	}
	return line, why, end
}

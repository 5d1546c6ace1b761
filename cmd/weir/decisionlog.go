package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/weirlabs/weir/engine"
)

// decisionLog appends one JSON line per decision to a file. Each line is one
// write, so that several processes may share the file and a crash loses none.
type decisionLog struct {
	mu     sync.Mutex
	file   *os.File
	line   []byte
	log    *slog.Logger
	failed bool
}

func openDecisionLog(path string, log *slog.Logger) (*decisionLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the decision log cannot be written: %w", err)
	}
	return &decisionLog{file: f, log: log}, nil
}

// write appends a record. A disk that is full must not stop requests: the
// first failure is logged, and lines are lost until writing works again.
func (d *decisionLog) write(r engine.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line = append(r.AppendJSON(d.line[:0]), '\n')
	_, err := d.file.Write(d.line)
	if failed := err != nil; failed != d.failed {
		if d.failed = failed; failed {
			d.log.Error("the decision log cannot be written; lines are lost", "err", err)
		} else {
			d.log.Info("the decision log can be written again")
		}
	}
}

func (d *decisionLog) Close() error { return d.file.Close() }

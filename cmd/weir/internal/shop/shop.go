// Package shop is the Little Stage, the ticket shop of the examples: a small
// HTTP service to stand behind weir. It books seats, takes orders, receives
// webhooks and lets software agents search, all in memory.
//
// It knows nothing of limits and of who is calling, as a service behind a
// proxy should. Like many routers it takes paths in any case.
package shop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Shop is the service. It is safe for concurrent use.
type Shop struct {
	mux    *http.ServeMux
	served atomic.Int64
	ids    atomic.Int64
}

// New returns a shop with every seat free.
func New() *Shop {
	s := &Shop{mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /{$}", s.front)
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { reply(w, 200, map[string]any{"ok": true}) })
	s.mux.HandleFunc("POST /reservations", s.book)
	s.mux.HandleFunc("POST /orders", s.order)
	s.mux.HandleFunc("POST /api/auth/login", s.login)
	s.mux.HandleFunc("POST /webhooks/{from}", s.webhook)
	s.mux.HandleFunc("GET /partner/events", s.events)
	s.mux.HandleFunc("GET /events", s.events)
	s.mux.HandleFunc("POST /assistant/search", s.events)
	return s
}

// Served is how many requests reached the shop.
func (s *Shop) Served() int64 { return s.served.Load() }

// ServeHTTP answers one request.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	r2 := r.Clone(r.Context())
	r2.URL.Path = strings.ToLower(r.URL.Path)
	r2.URL.RawPath = ""
	s.mux.ServeHTTP(w, r2)
}

func (s *Shop) front(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "The Little Stage. POST /reservations books a seat, POST /orders buys tickets, GET /events lists what is on.\n")
}

func (s *Shop) book(w http.ResponseWriter, r *http.Request) {
	var wish struct {
		Event string `json:"event"`
		Seats int    `json:"seats"`
	}
	if !read(w, r, &wish) {
		return
	}
	if wish.Event == "" {
		wish.Event = "the-seagull"
	}
	id := s.ids.Add(1)
	reply(w, http.StatusCreated, map[string]any{
		"reservation": fmt.Sprintf("r-%d", id), "event": wish.Event, "seat": fmt.Sprintf("%c%d", 'A'+(id/20)%26, id%20+1), "held_for_seconds": 600,
	})
}

func (s *Shop) order(w http.ResponseWriter, r *http.Request) {
	var wish struct {
		Reservation string `json:"reservation"`
	}
	if !read(w, r, &wish) {
		return
	}
	reply(w, http.StatusCreated, map[string]any{"order": fmt.Sprintf("o-%d", s.ids.Add(1)), "reservation": wish.Reservation, "status": "confirmed"})
}

// login knows nobody: what the demo sends is guesses.
func (s *Shop) login(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 64<<10))
	reply(w, http.StatusUnauthorized, map[string]any{"error": "invalid_login", "message": "User name or password is wrong."})
}

func (s *Shop) webhook(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		reply(w, http.StatusBadRequest, map[string]any{"error": "bad_request", "message": "The body cannot be read."})
		return
	}
	reply(w, http.StatusAccepted, map[string]any{"from": r.PathValue("from"), "bytes": n})
}

func (s *Shop) events(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 64<<10))
	reply(w, http.StatusOK, map[string]any{"events": []map[string]any{
		{"id": "the-seagull", "title": "The Seagull", "seats_free": 212},
		{"id": "jazz-night", "title": "Jazz Night", "seats_free": 48},
	}})
}

// read takes an optional JSON object of at most 64 KiB.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(into)
	if err == nil || err == io.EOF {
		return true
	}
	reply(w, http.StatusBadRequest, map[string]any{"error": "bad_request", "message": "The body is not a JSON object."})
	return false
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have left
}

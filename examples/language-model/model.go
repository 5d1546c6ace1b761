package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// complete is the service: a model so small that it fits here. It knows one
// answer to each kind of question, and bills a token for every word that it
// reads and writes.
func complete(w http.ResponseWriter, r *http.Request) {
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	words := strings.Fields(string(prompt))
	if err != nil || len(words) == 0 {
		http.Error(w, "no prompt", http.StatusUnprocessableEntity)
		return
	}
	text := answer(words)
	w.Header().Set("X-Tokens-Used", strconv.Itoa(len(words)+len(strings.Fields(text))))
	fmt.Fprintln(w, text)
}

func answer(question []string) string {
	if question[0] != "why" {
		return strings.Repeat("There is more to say of that, and then some. ", 15)
	}
	return strings.Repeat("Because of what was there before. ", 8)
}

// denialID is what differs from run to run.
var denialID = regexp.MustCompile(`"denialId":"[^"]*"`)

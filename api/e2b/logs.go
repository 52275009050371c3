// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// logLine is E2B's older form of a log, logEntry the newer one. Line is an object in JSON:
// E2B's command line ends with an error where it is none, or has no level.
type logLine struct {
	Timestamp string `json:"timestamp"`
	Line      string `json:"line"`
}

// line is an entry in the older form.
func (e *logEntry) line() logLine {
	b, _ := json.Marshal(map[string]string{ // strings alone
		"level": e.Level, "message": e.Message, "logger": "process", "stream": e.Fields["source"], "command": e.Fields["command"],
	})
	return logLine{e.Timestamp, string(b)}
}

type logEntry struct {
	Timestamp string            `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`

	at time.Time
}

// logLevels are E2B's, the least first.
var logLevels = []string{"debug", "info", "warn", "error"}

// logWish is which entries are asked for.
type logWish struct {
	from     time.Time
	limit    int
	backward bool
	level    int
	search   string
}

func readLogWish(q url.Values, fromName string) (w logWish, err error) {
	const maximum = 1000
	w.limit = maximum
	if v := q.Get("limit"); v != "" {
		if w.limit, err = strconv.Atoi(v); err != nil || w.limit < 0 || w.limit > maximum {
			return w, &apiError{http.StatusBadRequest, "limit lies between 0 and 1000"}
		}
	}
	if v := q.Get(fromName); v != "" {
		ms, err := strconv.ParseInt(v, 10, 52)
		if err != nil || ms < 0 {
			return w, &apiError{http.StatusBadRequest, fromName + " is no number of milliseconds since 1970"}
		}
		w.from = time.UnixMilli(ms)
	}
	if v := q.Get("level"); v != "" {
		if w.level = slices.Index(logLevels, v); w.level < 0 {
			return w, &apiError{http.StatusBadRequest, "level is one of " + strings.Join(logLevels, ", ")}
		}
	}
	switch q.Get("direction") {
	case "", "forward":
	case "backward":
		w.backward = true
	default:
		return w, &apiError{http.StatusBadRequest, "direction is forward or backward"}
	}
	w.search = q.Get("search")
	return w, nil
}

// pick takes from all entries, oldest first, those that are wished for.
func (w logWish) pick(all []logEntry) []logEntry {
	if w.backward {
		slices.Reverse(all)
	}
	out := []logEntry{}
	for _, e := range all {
		// Backward, what is asked for is what was before.
		early := e.at.Before(w.from)
		if !w.from.IsZero() && early != w.backward {
			continue
		}
		if len(out) < w.limit && slices.Index(logLevels, e.Level) >= w.level && strings.Contains(e.Message, w.search) {
			out = append(out, e)
		}
	}
	return out
}

// entries are a program that ended, in E2B's words: a line each of what it wrote,
// and how it ended.
func entries(l persistent.Log) []logEntry {
	command := strings.Join(l.Argv, " ")
	var out []logEntry
	add := func(source, level, message string) {
		out = append(out, logEntry{l.At.UTC().Format(time.RFC3339Nano), level, message, map[string]string{"source": source, "command": command}, l.At})
	}
	lines := func(source, level string, b []byte) {
		if len(b) == 0 {
			return
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(strings.ToValidUTF8(string(b), "\uFFFD"), "\n"), "\n") {
			add(source, level, line)
		}
	}
	lines("stdout", "info", l.Stdout)
	lines("stderr", "warn", l.Stderr)
	switch {
	case l.Status == sandbox.StatusSuccess:
		add("process", "info", "exited with code 0: "+command)
	case l.ExitCode != nil:
		add("process", "error", "exited with code "+strconv.Itoa(*l.ExitCode)+": "+command)
	case l.Signal != "":
		add("process", "error", "ended by "+l.Signal+": "+command)
	default:
		add("process", "error", "not run: "+command+": "+l.Reason)
	}
	return out
}

func (s *Server) logEntries(r *http.Request, k *persistent.Key, fromName string) ([]logEntry, error) {
	wish, err := readLogWish(r.URL.Query(), fromName)
	if err != nil {
		return nil, err
	}
	kept, _, err := s.o.Sandboxes.Handle(k, pathID(r)).Logs(r.Context(), 0)
	if err != nil {
		return nil, err
	}
	var all []logEntry
	for _, l := range kept {
		all = append(all, entries(l)...)
	}
	return wish.pick(all), nil
}

// logs answers with the programs that have ended, and the beginning of what they
// wrote, as far as they are kept.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	all, err := s.logEntries(r, k, "start")
	if err != nil {
		return err
	}
	lines := []logLine{}
	for _, e := range all {
		lines = append(lines, e.line())
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": all})
	return nil
}

// logsV2 is logs with pages and filters.
func (s *Server) logsV2(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	all, err := s.logEntries(r, k, "cursor")
	if err == nil {
		writeJSON(w, http.StatusOK, map[string]any{"logs": all})
	}
	return err
}

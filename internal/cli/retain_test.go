// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
)

// told is a log that says when something is written to it.
type told struct {
	slog.Handler
	tell func()
}

func (told) Enabled(context.Context, slog.Level) bool { return true }

func (t told) Handle(context.Context, slog.Record) error { t.tell(); return nil }

// A daemon drops what is too old by itself, and what is not it keeps.
func TestRetain(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	record := func(at time.Time, id string) {
		log, err := audit.Open(t.Context(), audit.Options{Dir: dir, Now: func() time.Time { return at }})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if err := log.Refuse(t.Context(), audit.Intent{Kind: "run_command", Sandbox: id}, audit.Outcome{Status: audit.Refused}); err != nil {
			t.Fatal(err)
		}
	}
	record(now.Add(-48*time.Hour), "old")
	record(now, "new")
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	dropped := make(chan struct{})
	stop := retain(log, 24*time.Hour, slog.New(told{slog.DiscardHandler, func() { close(dropped) }}))
	<-dropped
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		id := "pruned"
		if r.Call != nil {
			id = r.Call.Sandbox
		}
		got = append(got, id)
	}
	if len(got) != 2 || got[0] != "new" || got[1] != "pruned" {
		t.Errorf("%q", got)
	}
	if rep, err := log.Verify(t.Context()); err != nil || !rep.OK() {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestKeepRecords(t *testing.T) {
	for s, want := range map[string]time.Duration{"": 0, "24h": 24 * time.Hour, "2h": 2 * time.Hour} {
		if got, err := keepRecords(s); err != nil || got.Round(time.Minute) != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"59m", "0d", "-5d", "2026-01-01", "2026-01-01T10:00:00Z", "soon"} {
		if got, err := keepRecords(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

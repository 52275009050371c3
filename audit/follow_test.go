// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// What another process records is told as it comes: when it begins, and when it has
// ended.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	call(t, l, "old")
	call(t, l, "last")
	reader, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer reader.Close()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	seen := make(chan Record)
	ended := make(chan error, 1)
	go func() {
		ended <- reader.Follow(ctx, Filter{Limit: 1, Actor: "uid:1000"}, func(r Record) bool { seen <- r; return true })
	}()
	next := func(sandbox string, status Status) {
		t.Helper()
		if r := <-seen; r.Call.Sandbox != "sbx_"+sandbox || r.Status != status {
			t.Errorf("%s %s, want %s %s", r.Call.Sandbox, r.Status, sandbox, status)
		}
	}
	next("last", Allowed)
	e, err := l.Begin(ctx, intent("new"))
	must(t, err)
	next("new", Unfinished)
	other := intent("other")
	other.Actor = "key:other"
	_, err = l.Begin(ctx, other) // which was not asked for
	must(t, err)
	must(t, l.Refuse(ctx, intent("no"), Outcome{Status: Refused}))
	next("no", Refused)
	must(t, e.End(ctx, outcome("new")))
	next("new", Allowed)
	cancel()
	must(t, <-ended)
}

// Who has seen enough is told no more, and nothing is left.
func TestFollowUntil(t *testing.T) {
	l := open(t, t.TempDir())
	call(t, l, "a")
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := 0
	ctx, cancel := context.WithCancel(ctx)
	must(t, l.Follow(ctx, Filter{Limit: 5}, func(Record) bool { n++; return false }))
	cancel()
	if n != 1 {
		t.Error(n)
	}
}

func TestFilters(t *testing.T) {
	l := open(t, t.TempDir())
	call(t, l, "a")
	tool := intent("b")
	tool.Tool = "run_code"
	e, err := l.Begin(ctx, tool)
	must(t, err)
	must(t, e.End(ctx, outcome("b")))
	asked := intent("c")
	asked.Approval = &Approval{ID: "apr"}
	_, err = l.Begin(ctx, asked)
	must(t, err)
	no := outcome("d")
	no.Status, no.Result.Rule = Refused, "/etc/p.yaml:12"
	must(t, l.Refuse(ctx, intent("d"), no))
	for name, c := range map[string]struct {
		f    Filter
		want []string
	}{
		"tool": {Filter{Tool: "run_code"}, []string{"b"}}, "allow": {Filter{Verdict: Allow}, []string{"b", "a"}}, "deny": {Filter{Verdict: Deny}, []string{"d"}},
		"ask": {Filter{Verdict: Ask}, []string{"c"}}, "rule": {Filter{Rule: "p.yaml:12"}, []string{"d"}}, "none": {Filter{Rule: "p.yaml:13"}, nil},
		"until": {Filter{Until: time.Unix(0, 0)}, nil},
	} {
		var got []string
		for r, err := range l.Query(ctx, c.f) {
			must(t, err)
			got = append(got, r.Call.Sandbox[len("sbx_"):])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestCellIsDefused(t *testing.T) {
	for in, want := range map[string]string{
		"=1+1": "'=1+1", "+1": "+1", "-5": "-5", "@SUM(1)": "'@SUM(1)", "\t=1": "' =1", " =1": "' =1", "\u00a0=1": "'\u00a0=1", "＝1": "'＝1", "\u200b=1": "' =1",
		"\r\n-cmd|x": "'  -cmd|x", "plain": "plain", "": "", "a=b": "a=b", "-": "'-", "\ufeff+x": "' +x",
	} {
		if got := cell(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A head that a person kept finds what a checkpoint finds.
func TestHeadThatWasKept(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	call(t, l, "a")
	c, err := l.Checkpoint(ctx)
	must(t, err)
	kept, err := ParseHead(c.Head() + "\n")
	must(t, err)
	call(t, l, "b")
	wantOK(t, verify(t, dir, kept))
	for _, c := range []Checkpoint{{Count: kept.Count, Link: hex.EncodeToString(sum([]byte("x"))), bare: true}, {Count: kept.Count + 9, Link: kept.Link, bare: true}, {Count: kept.Count, Link: kept.Link}} {
		if rep := verify(t, dir, c); rep.OK() {
			t.Errorf("%+v is taken", c)
		}
	}
	for _, s := range []string{"", ":", "1", "0:" + c.Link, "-1:" + c.Link, "1:zz", c.Head() + "0", "1:" + c.Link[2:]} {
		if _, err := ParseHead(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

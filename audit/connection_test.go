// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

func passages(call string) []Connection {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return []Connection{
		{Actor: "uid:1000", Sandbox: "sbx_a", Call: call, Status: Allowed, Connection: sandbox.Connection{
			Protocol: "tcp", Host: "good.test", Address: "93.184.216.34", Port: 443, Rule: "good.test", From: "--allow", Sent: 10, Received: 20, Started: at, DurationMS: 1500}},
		{Actor: "uid:1000", Sandbox: "sbx_a", Call: call, Status: Refused, Connection: sandbox.Connection{
			Protocol: "dns", Host: "evil.test", Reason: "it is not in the allow-list", Path: strings.Repeat("x", 1<<20)}},
	}
}

// A connection is one record, of its call, and stays in the chain.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	e, err := l.Begin(ctx, intent("a"))
	must(t, err)
	must(t, l.Connections(ctx, passages(e.ID)[:1]))
	must(t, l.Connections(ctx, nil))
	out := outcome("a")
	out.Connections = []Connection{{Status: Pruned}}
	if err := e.End(ctx, out); err == nil {
		t.Error("an outcome with a connection that cannot be is recorded")
	}
	out.Connections = passages(e.ID)[1:]
	must(t, e.End(ctx, out))
	call(t, l, "b")
	_, all := list(t, l, Filter{Of: e.ID, OldestFirst: true})
	if len(all) != 2 || all[0].Status != Allowed || all[1].Status != Refused || all[0].Call.Connection.Sent != 10 || all[0].Ended.Second() != 1 || all[1].Ended != nil {
		t.Fatalf("%+v", all)
	}
	if n := len(all[1].Call.Connection.Path); n > 2*maxName {
		t.Errorf("a path of %d bytes is kept", n)
	}
	if ids, _ := list(t, l, Filter{Kind: KindConnection, Status: Refused}); len(ids) != 1 || ids[0] != all[1].ID {
		t.Errorf("refused: %v", ids)
	}
	if ids, _ := list(t, l, Filter{}); len(ids) != 4 {
		t.Errorf("all: %v", ids)
	}
	d, err := l.Show(ctx, e.ID)
	must(t, err)
	if len(d.Connections) != 2 || d.Status != Allowed || d.MoreConnections {
		t.Errorf("%+v", d)
	}
	d, err = l.Show(ctx, all[0].ID)
	must(t, err)
	if d.Call.Connection.Host != "good.test" || d.Call.Of != e.ID {
		t.Errorf("%+v", d.Call)
	}
	wantOK(t, verify(t, dir))
	// One that is changed shows.
	must(t, l.Close())
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, dbFile))
	must(t, err)
	defer db.Close()
	_, err = db.Exec("UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'evil', 'good') AS BLOB) WHERE seq = ?", all[1].Seq)
	must(t, err)
	if rep := verify(t, dir); rep.OK() || rep.Findings[0].Seq != all[1].Seq {
		t.Errorf("%+v", rep.Findings)
	}
}

// Retention takes connections along.
func TestConnectionsArePruned(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	must(t, l.Connections(ctx, passages("aud_x")))
	n, err := l.Prune(ctx, time.Now().Add(24*365*time.Hour))
	must(t, err)
	_, all := list(t, l, Filter{})
	if n != 2 || len(all) != 2 || all[0].Status != Pruned {
		t.Errorf("%d dropped: %+v", n, all)
	}
	wantOK(t, verify(t, dir))
}

// One that stands for nothing is no record.
func TestConnectionStatus(t *testing.T) {
	if err := open(t, t.TempDir()).Connections(ctx, []Connection{{Status: Pruned}}); err == nil {
		t.Error("it was taken")
	}
}

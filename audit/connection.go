// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// KindConnection is the kind of the records that Connections makes.
const KindConnection = "connection"

// Connection is one connection that a sandbox made, or one sort of attempt that
// was refused. It is a record of its own, after the fact.
type Connection struct {
	Actor   string
	Account string // see Intent
	Sandbox string
	Call    string // the ID of the call whose sandbox it was
	// Status is Allowed; Refused, when a rule was against it; or Failed, when
	// what was allowed could not be reached.
	Status Status
	sandbox.Connection
}

// connectionBody is a Connection as it is recorded: a call that needs no second
// record to say what came of it.
type connectionBody struct {
	Status Status `json:"status"`
	Call
}

// maxName bounds each text of a connection's record: names and paths are of
// the sandbox's making.
const maxName = 512

func (c *Connection) body() connectionBody {
	short := func(s string) string { return clean(s, maxName) }
	n := c.Connection
	n.Protocol, n.Host, n.Address, n.Rule, n.From = short(n.Protocol), short(n.Host), short(n.Address), short(n.Rule), short(n.From)
	n.Reason, n.Method, n.Path = short(n.Reason), short(n.Method), short(n.Path)
	return connectionBody{Status: c.Status, Call: Call{
		Actor: clean(c.Actor, maxText), Kind: KindConnection, Sandbox: clean(c.Sandbox, maxText), Of: clean(c.Call, maxText), Connection: &n,
	}}
}

// ended is when the connection was over; zero when that is not known.
func (b *connectionBody) ended() (t time.Time) {
	if n := b.Connection; n != nil && !n.Started.IsZero() {
		t = n.Started.Add(time.Duration(n.DurationMS) * time.Millisecond)
	}
	return t
}

// Connections records what a sandbox's network did, in one commit. The records
// are on disk when it returns. It makes them even if ctx has ended.
func (l *Log) Connections(ctx context.Context, list []Connection) error {
	records, err := l.connections(list)
	if err != nil || len(records) == 0 {
		return err
	}
	if err := l.commit(context.WithoutCancel(ctx), records...); err != nil {
		return err
	}
	for i, a := range records {
		l.count(list[i].Account, a)
	}
	return nil
}

func (l *Log) connections(list []Connection) ([]*addition, error) {
	var records []*addition
	for i := range list {
		switch list[i].Status {
		case Allowed, Refused, Failed:
		default:
			return nil, sandbox.Errorf(sandbox.ErrInvalid, "audit", "a connection is allowed, refused or failed, not %q", list[i].Status)
		}
		id, err := l.newID()
		if err != nil {
			return nil, unavailable("audit", err)
		}
		body, err := encode(list[i].body())
		if err != nil {
			return nil, unavailable("audit", err)
		}
		records = append(records, &addition{record: record{entry: id, event: eventConnection, body: body}})
	}
	return records, nil
}

// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
	"github.com/caisson-run/caisson/sandbox"
)

// maxMessage bounds one message of a watch, in bytes: two paths, a name, and
// metadata.
const maxMessage = 128 << 10

// Watch is a directory that is watched. Close it.
type Watch struct{ stream *long }

// Watch begins to watch a directory for as long as ctx lasts. What happens after
// it has returned is seen.
//
// E2B's stream has {"start":{}} first and then {"filesystem":{…}}, each at the
// top of its message, unlike those of processes.
func (c *Client) Watch(ctx context.Context, path string, o sandbox.WatchOptions) (*Watch, error) {
	op := "watch " + printable(path)
	if err := wire.CheckName(path); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	header := http.Header{envd.KeepaliveHeader: {"10"}} // seconds; IdleTimeout is longer
	q := envd.WatchRequest{Path: path, Recursive: o.Recursive, IncludeEntry: o.Entries}
	l, err := c.openEnvelope(ctx, op, envd.PathWatchDir, header, q)
	if err != nil {
		return nil, err
	}
	w := &Watch{l}
	e, err := w.message()
	if err == nil && e.Start == nil {
		err = l.lost(fmt.Errorf("the first message is no start"))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return w, nil
}

// Next waits for the next change. The agent's reason to end the watch, such as
// too many changes at once, is a [*sandbox.AgentError].
func (w *Watch) Next() (sandbox.FileChange, error) {
	for {
		e, err := w.message()
		switch {
		case err != nil:
			return sandbox.FileChange{}, err
		case e.Filesystem != nil:
			c, err := change(e.Filesystem)
			if err != nil {
				return sandbox.FileChange{}, w.stream.lost(err)
			}
			return c, nil
		case e.Keepalive == nil:
			return sandbox.FileChange{}, w.stream.lost(fmt.Errorf("a message of a watch says nothing"))
		}
	}
}

// Close ends the watch. A call of Next that waits returns an error.
func (w *Watch) Close() error { return w.stream.Close() }

// message reads one envelope.
func (w *Watch) message() (e envd.WatchEvent, err error) {
	var h [wire.HeaderSize]byte
	if _, err := io.ReadFull(w.stream.answer, h[:]); err != nil {
		return e, w.stream.lost(unexpected(err))
	}
	n := binary.BigEndian.Uint32(h[1:])
	if h[0]&^2 != 0 || n > maxMessage {
		return e, w.stream.lost(fmt.Errorf("an envelope has the flags %#x and %d bytes", h[0], n))
	}
	b, err := io.ReadAll(io.LimitReader(w.stream.answer, int64(n)))
	if err == nil && len(b) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return e, w.stream.lost(err)
	}
	if h[0] == 2 {
		return e, w.stream.refused(b)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, w.stream.lost(err)
	}
	return e, nil
}

// refused is the error in the envelope that ends a stream.
func (l *long) refused(b []byte) error {
	var end struct {
		Error *struct{ Code, Message string }
	}
	if err := json.Unmarshal(b, &end); err != nil || end.Error == nil {
		return l.lost(io.ErrUnexpectedEOF)
	}
	return refusal(l.op, 0, end.Error.Code, end.Error.Message)
}

func change(c *envd.Change) (sandbox.FileChange, error) {
	k := sandbox.ChangeKind(c.Type)
	switch k {
	case sandbox.FileCreated, sandbox.FileChanged, sandbox.FileRemoved, sandbox.FileRenamed, sandbox.FileChmodded:
	default:
		return sandbox.FileChange{}, fmt.Errorf("%q is no change", printable(c.Type))
	}
	to := sandbox.FileChange{Name: c.Name, Kind: k}
	if c.Entry != nil {
		e := entry(c.Entry)
		to.File = &e
	}
	return to, nil
}

// CreateWatcher begins to watch a directory, until RemoveWatcher or the
// sandbox's end; changes are kept until they are asked for, some 16 000 of
// them. There are 64 such watchers at most.
func (c *Client) CreateWatcher(ctx context.Context, path string, o sandbox.WatchOptions) (id string, _ error) {
	var a envd.WatcherAnswer
	q := envd.WatchRequest{Path: path, Recursive: o.Recursive, IncludeEntry: o.Entries}
	op := "watch " + printable(path)
	if err := c.pathCall(ctx, op, envd.PathCreateWatcher, q, &a, path); err != nil {
		return "", err
	}
	if a.WatcherID == "" || len(a.WatcherID) > 64 {
		return "", sandbox.Errorf(sandbox.ErrUnavailable, op, "the guest agent's answer names no watcher")
	}
	return a.WatcherID, nil
}

// WatcherEvents returns what has changed since it was asked for the last time,
// some 2000 changes at most: the next call has the next ones.
func (c *Client) WatcherEvents(ctx context.Context, id string) ([]sandbox.FileChange, error) {
	var a envd.WatcherEvents
	op := "read watcher " + printable(id)
	if err := c.call(ctx, op, envd.PathGetWatcherEvents, envd.WatcherRequest{WatcherID: id}, &a); err != nil {
		return nil, err
	}
	all := make([]sandbox.FileChange, 0, len(a.Events))
	for _, e := range a.Events {
		if e == nil {
			continue
		}
		one, err := change(e)
		if err != nil {
			return nil, c.lost(op, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// RemoveWatcher ends a watcher.
func (c *Client) RemoveWatcher(ctx context.Context, id string) error {
	return c.call(ctx, "remove watcher "+printable(id), envd.PathRemoveWatcher, envd.WatcherRequest{WatcherID: id}, &struct{}{})
}

// SPDX-License-Identifier: Apache-2.0

// Package guest is the host's side of the conversation with the agent inside a
// sandbox: programs, terminals, signals, and files.
//
// What comes back was written by code that may be hostile, since root inside
// owns the agent. A [Client] therefore bounds all of it: memory by windows and
// caps, time by deadlines, the host's processor by what may be sent in vain.
// Nothing in an answer becomes a path on the host, a size to allocate, or a
// decision; see README.md for the protocol and the bounds.
package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Options of a client. The zero value runs programs as root of the sandbox
// under no rlimits; drivers set User and Limits from their Spec.
type Options struct {
	// User is who programs run as and whose rights file operations have.
	User sandbox.User
	// NewPrivileges lets set-user-id programs work; otherwise no_new_privs is on.
	NewPrivileges bool
	// Limits are given to every program as rlimits: OpenFiles, Processes,
	// FileSize and CPUTime (per process, in whole seconds). Others are the
	// level's own.
	Limits sandbox.Limits

	// CallTimeout bounds one call that is not a stream; 30 s when 0.
	CallTimeout time.Duration
	// IdleTimeout ends a stream on which nothing arrives, not even a sign of
	// life, which an agent gives every 10 s; 45 s when 0.
	IdleTimeout time.Duration
	// PingAfter is how long nothing may arrive before the agent is asked for a sign
	// of life, and PingTimeout how long that may take; 5 minutes and 15 s when 0. Each
	// question wakes a sandbox that sleeps, and is the last resort: calls have
	// CallTimeout, streams IdleTimeout. A write that the agent does not take fails
	// after PingTimeout too.
	PingAfter, PingTimeout time.Duration
	// TransferTimeout bounds moving files when the context has no deadline; 10
	// minutes when 0.
	TransferTimeout time.Duration
	// Streams is how many calls are on their way at once; others wait. 64 when 0.
	Streams int
	// Listeners is how many streams that stay may be open at once (listeners to
	// processes, watches, tunnels); others are refused. 160 when 0; the agent
	// takes 256 streams of all kinds. Three of four may be tunnels, which strangers
	// open; the rest is for who has a right to the sandbox.
	Listeners int
}

// Bounds that need no change.
const (
	// streamWindow is how much of one answer can lie unread, connWindow of all.
	streamWindow = 256 << 10
	connWindow   = 4<<20 - 1 // the most that net/http takes
	maxHeader    = 16 << 10
	// maxFrame is how much of an answer comes at once, in bytes. Each piece costs
	// the agent several turns of scheduling, which inside gVisor is most of what a
	// transfer costs.
	maxFrame = 128 << 10
)

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.CallTimeout, 30*time.Second)
	set(&o.IdleTimeout, 45*time.Second)
	set(&o.TransferTimeout, 10*time.Minute)
	set(&o.PingAfter, 5*time.Minute)
	set(&o.PingTimeout, 15*time.Second)
	if o.Streams == 0 {
		o.Streams = 64
	}
	if o.Listeners == 0 {
		o.Listeners = 160
	}
	return o
}

// Client talks to one agent over one session. It is safe for concurrent use.
type Client struct {
	options Options
	meter   *meter
	pulse   *pulse
	http    *http.ClientConn
	streams chan struct{} // holds one element per call under way
	long    chan struct{} // and per stream that stays
	tunnels chan struct{} // and per tunnel, each of which is one of long, too
	user    string        // whose rights calls have; empty: those of Options.User
}

// As is a client on the same session whose calls have the rights of a user of
// the sandbox, by name; "" is the sandbox's own. Who that is the agent alone says: a
// call that is decided has [Client.AsUser]. One whom the sandbox does not have gives
// ErrInvalid and a [*sandbox.AgentError] with the code "unauthenticated". Closing either
// client closes both.
func (c *Client) As(user string) *Client {
	other := *c
	other.user, _, _ = strings.Cut(user, ":") // which no name holds
	return &other
}

// AsUser is the client with the rights of u, by number: for the host to choose,
// who decided that u may be had. Closing one closes both.
func (c *Client) AsUser(u sandbox.User) *Client {
	other := *c
	other.user, other.options.User = "", u
	return &other
}

// Under is the client whose programs have other limits. Closing one closes both.
func (c *Client) Under(l sandbox.Limits) *Client {
	other := *c
	other.options.Limits = l
	return &other
}

// NewClient speaks HTTP/2 on conn, which comes from Instance.Dial and is the
// client's from now on, also when NewClient fails. Nothing is asked of the
// agent yet; [Client.Health] does.
func NewClient(conn net.Conn, o Options) (*Client, error) {
	o = o.withDefaults()
	cc, m, err := speak(conn, o)
	if err != nil {
		return nil, &sandbox.Error{Op: "guest agent", Kind: sandbox.ErrUnavailable, Problem: "no session", Cause: err}
	}
	c := &Client{options: o, meter: m, http: cc, streams: make(chan struct{}, o.Streams), long: make(chan struct{}, o.Listeners),
		tunnels: make(chan struct{}, max(o.Listeners*3/4, 1))}
	c.watchPulse()
	return c, nil
}

// speak begins HTTP/2 on conn with a program inside, within the bounds of o.
// conn is closed when it fails.
func speak(conn net.Conn, o Options) (*http.ClientConn, *meter, error) {
	m := newMeter(conn)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return m, nil },
		Protocols:              &protocols,
		DisableCompression:     true, // a bomb needs a reader that inflates it
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReadFrameSize:              maxFrame,
			MaxDecoderHeaderTableSize:     4096,
			MaxEncoderHeaderTableSize:     4096,
			WriteByteTimeout:              o.PingTimeout,
			StrictMaxConcurrentRequests:   true,
		},
	}
	cc, err := t.NewClientConn(context.Background(), "http", "guest:80")
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return cc, m, nil
}

// Close ends the session, and with it what runs through it.
func (c *Client) Close() error {
	c.pulse.stop()
	return errors.Join(c.http.Close(), c.meter.Close())
}

// Lost says why the session cannot be used any more; nil while it can. Another one
// is begun with Instance.Dial.
func (c *Client) Lost() error {
	if err := c.meter.fault(); err != nil {
		return err
	}
	return c.http.Err()
}

// Health asks the agent whether it lives.
func (c *Client) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	resp, release, err := c.roundTrip(ctx, http.MethodGet, "/health", nil, "")
	if err != nil {
		return c.lost("ask the guest agent", err)
	}
	defer release()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return sandbox.Errorf(sandbox.ErrUnavailable, "ask the guest agent", "it answers with status %d", resp.StatusCode)
	}
	return nil
}

// call is one JSON message for another.
func (c *Client) call(ctx context.Context, op, path string, q, a any) error {
	if err := c.acquire(ctx); err != nil {
		return c.lost(op, err)
	}
	defer c.release()
	return c.urgent(ctx, op, path, q, a)
}

// urgent is a call that does not wait for others to end: what signals and
// resizes a program must not wait for that very program.
func (c *Client) urgent(ctx context.Context, op, path string, q, a any) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
	defer cancel()
	b, err := json.Marshal(q)
	if err != nil {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	resp, err := c.send(ctx, http.MethodPost, path, bytes.NewReader(b), "application/json")
	if err != nil {
		return c.lost(op, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answeredError(op, resp)
	}
	return c.decode(op, resp.Body, a)
}

func (c *Client) acquire(ctx context.Context) error {
	select {
	case c.streams <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) release() { <-c.streams }

// roundTrip sends one request when its turn has come. The caller calls release
// when it is done with the answer.
func (c *Client) roundTrip(ctx context.Context, method, path string, body io.Reader, contentType string) (_ *http.Response, release func(), _ error) {
	if err := c.acquire(ctx); err != nil {
		return nil, nil, err
	}
	resp, err := c.send(ctx, method, path, body, contentType)
	if err != nil {
		c.release()
		return nil, nil, err
	}
	return resp, c.release, nil
}

// send sends one request. Redirects are answers like any other, and nothing is
// tried twice.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader, contentType string) (*http.Response, error) {
	header := http.Header{}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	return c.sendHeader(ctx, method, path, header, body)
}

func (c *Client) sendHeader(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://guest"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header = header
	if c.user != "" {
		req.SetBasicAuth(c.user, "")
	} else {
		header.Set(wire.UserHeader, fmt.Sprintf("%d:%d", c.options.User.UID, c.options.User.GID))
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &credited{ReadCloser: resp.Body, meter: c.meter}
	return resp, nil
}

// lost explains why a call has no answer.
func (c *Client) lost(op string, err error) error {
	if m := c.meter.fault(); m != nil {
		err = m
	}
	if errors.Is(err, context.Canceled) {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "it was given up", Cause: err}
	}
	return &sandbox.Error{
		Op: op, Kind: sandbox.ErrUnavailable, Problem: "the guest agent did not answer", Cause: err,
		Hint: "the sandbox may have run out of a limit or been ended; start another one",
	}
}

// printable makes a phrase of the guest's harmless to show.
func printable(s string) string {
	const maximum = 512
	if len(s) > maximum {
		s = s[:maximum]
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// limits are the rlimits of a program.
func (o Options) limits() wire.Limits {
	l := wire.Limits{
		OpenFiles: uint64(max(o.Limits.OpenFiles, 0)),
		Processes: uint64(max(o.Limits.Processes, 0)),
		FileSize:  uint64(max(o.Limits.FileSize, 0)),
	}
	if t := o.Limits.CPUTime; t > 0 {
		l.CPU = uint64((t + time.Second - 1) / time.Second)
	}
	return l
}

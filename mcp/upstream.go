// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 what is deprecated is what older servers and clients use

package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Upstream is a third-party server of a gateway.
type Upstream struct {
	Name string
	// Server is its entry in the policy, or what the command line said of it.
	Server *policy.Server
	// Place writes where something of Server stands, for messages.
	Place func(policy.Pos) string
	// Session decides and runs it, by a policy of its own. Call is what runs.
	Session *session.Session
	Call    session.Call
	// Advice is what its operator may have forgotten, told where it does not become
	// ready; empty is nothing.
	Advice string
	// Image is the image it runs on, and PolicySHA the digest of its policy, for
	// pins and records.
	Image, Policy, PolicySHA string
}

// Bounds of a server's life.
const (
	startTimeout = 60 * time.Second // from its start to its list of tools
	listTimeout  = 30 * time.Second
	endTimeout   = 2 * time.Second // from the end of its input to its own end
	steady       = time.Minute     // after which a crash is the first again
	// unreadTimeout is how long it may leave what it is told unread.
	unreadTimeout = 30 * time.Second
	maxFrame      = 16 << 20        // bytes of one message of its
	callTimeout   = 5 * time.Minute // of one call, unless the policy says
	callOutput    = 1 << 20         // bytes of one result, unless the policy says
	callParallel  = 16              // calls under way, unless the policy says
	maxSilent     = 3               // calls in a row without an answer in their time, after which it hangs
)

// upstream is a server that is kept running.
type upstream struct {
	o      Upstream
	g      *Gateway
	slots  chan struct{}
	relist chan struct{} // holds one when the server said that its tools changed

	silence time.Duration // how long it may say nothing when it is asked what it is; live alone uses it
	unread  time.Duration // how long it may read nothing of what it is told

	mu      sync.Mutex
	session *sdk.ClientSession // nil while it does not run
	down    string             // why
	again   time.Time          // when it is started again
	tools   []*offered
	hidden  []hidden
	has     survey            // of the rest, as callers see it
	prompts map[string]string // its names of those, by callers'
	callers map[*caller]bool  // whose calls are under way
	news    *rate.Limiter     // of resources that have changed
	watched map[string]bool   // resources that it was asked to tell of
	silent  int               // calls in a row that it did not answer in their time
	hung    chan struct{}     // closed when those were too many
	listed  bool              // it said once what it has
}

func newUpstream(g *Gateway, o Upstream) *upstream {
	n := o.Server.Calls.Parallel.V
	if n == 0 {
		n = callParallel
	}
	u := &upstream{o: o, g: g, slots: make(chan struct{}, n),
		relist: make(chan struct{}, 1), silence: probeTimeout, unread: unreadTimeout, down: "it has not started yet", news: rate.NewLimiter(10, 50)}
	return u
}

// keep runs the server until ctx ends, and again after each crash, later each
// time. tried is called when the first start has come to something.
func (u *upstream) keep(ctx context.Context, tried func()) {
	defer tried()
	for crashes := 1; ; crashes++ {
		began := time.Now()
		err := u.live(ctx, u.offerTools(ctx, tried))
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			crashes = 1
		}
		wait := u.g.backoff(crashes)
		down, hint := line(err.Error(), 500), sandbox.Hint(err)
		if hint == "" && errors.Is(err, errUnready) {
			hint = u.o.Advice
		}
		if hint != "" {
			down += "; " + hint
		}
		u.mu.Lock()
		u.session, u.down, u.again = nil, down, time.Now().Add(wait)
		u.mu.Unlock()
		u.g.o.Notice(fmt.Sprintf("server %s: %s; it is started again in %v", u.o.Name, down, wait))
		tried()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// backoff is how long a server is left alone after its nth crash in a row.
func backoff(n int) time.Duration { return min(time.Second<<min(n-1, 6), time.Minute) }

// live runs the server, as long as use uses it, and says why it ended.
func (u *upstream) live(ctx context.Context, use func(start context.Context, cs *sdk.ClientSession) error) error {
	err := u.once(ctx, u.silence, use)
	if errors.Is(err, errHasty) {
		u.silence = startTimeout
		err = u.once(ctx, u.silence, use)
	}
	return err
}

// tellFound says what the server left in what it has read-write.
func (u *upstream) tellFound(res *sandbox.Result) {
	if res == nil {
		return
	}
	for _, f := range res.Findings {
		if f.Action == sandbox.ActionInspect {
			u.g.o.Notice(fmt.Sprintf("server %s: finding: %q: %s", u.o.Name, f.Text, f.Problem))
		}
	}
}

// once starts the server and lets use use it. It may be silent for timeout when it is
// asked what it is.
func (u *upstream) once(ctx context.Context, timeout time.Duration, use func(start context.Context, cs *sdk.ClientSession) error) (err error) {
	// What it still does is ended last, so that it can end by itself before.
	run, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	complaints := &complaints{name: u.o.Name, to: u.g.o.Complaint}
	ended := make(chan error, 1)
	go func() {
		call := u.o.Call
		res, err := u.o.Session.Do(run, &call, session.IO{Stdin: stdin, Stdout: stdout, Stderr: complaints})
		stdin.Close()
		stdout.Close()
		u.tellFound(res)
		ended <- whyEnded(res, err)
	}()
	defer func() {
		toServer.Close() // the sign to end
		select {
		case <-time.After(endTimeout):
			kill()
			<-ended
		case why := <-ended:
			err = both(err, why)
		}
		fromServer.Close()
	}()

	client := sdk.NewClient(&sdk.Implementation{Name: "caisson", Version: u.g.o.Version}, u.clientOptions())
	order := &order{}
	client.AddReceivingMiddleware(u.g.outlives, order.hears, u.elicits)
	probe := &probe{timeout: timeout}
	client.AddSendingMiddleware(probe.asks)
	start, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	// Where it ends before it answers, that is the reason.
	hears := &heard{PipeWriter: toServer, timeout: u.unread, deaf: func() {
		fromServer.CloseWithError(errDeaf)
		u.g.o.Notice(fmt.Sprintf("server %s: %v, and is ended", u.o.Name, errDeaf))
	}}
	way := wire{in: newMeter(fromServer), out: hears, odd: u.odd(complaints)}
	cs, err := client.Connect(start, ordered{way, order}, u.g.era())
	if probe.hasty(err) {
		return fmt.Errorf("%w: %w", errHasty, err)
	}
	if err != nil {
		return unready(start, err)
	}
	// A message that it does not read is in the way of the end otherwise.
	defer func() { toServer.Close(); cs.Close() }()
	return use(start, cs)
}

var errUnready = errors.New("it did not become ready")

// unready is why a server could not be spoken to.
func unready(start context.Context, err error) error {
	if errors.Is(start.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w within %v", errUnready, startTimeout)
	}
	return fmt.Errorf("%w: %w", errUnready, err)
}

// offerTools offers what a server that runs has, until it ends.
func (u *upstream) offerTools(ctx context.Context, up func()) func(context.Context, *sdk.ClientSession) error {
	return func(start context.Context, cs *sdk.ClientSession) error {
		gone := make(chan struct{})
		go func() { cs.Wait(); close(gone) }()
		if err := u.list(start, cs); err != nil {
			return err
		}
		lost := u.g.subscribed.all() // while it does not run no client subscribes
		u.mu.Lock()
		u.session, u.down, u.watched, u.silent = cs, "", nil, 0
		hung := make(chan struct{})
		u.hung = hung
		u.mu.Unlock()
		up()
		alive, dead := context.WithCancel(ctx)
		var renewed sync.WaitGroup
		renewed.Go(func() { u.resubscribe(alive, cs, lost) })
		defer renewed.Wait()
		defer dead()
		pace := rate.NewLimiter(1, 3)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-gone:
				return errors.New("it left")
			case <-hung:
				return fmt.Errorf("it answered none of %d calls in their time", maxSilent)
			case <-u.relist:
			}
			again, stop := context.WithTimeout(ctx, listTimeout)
			err := pace.Wait(again)
			if err == nil {
				err = u.list(again, cs)
			}
			if err == nil {
				u.g.stir(u)
			}
			stop()
			if err != nil {
				return err
			}
		}
	}
}

// noteAnswer notes whether a call was answered in its time. A server that hangs is ended,
// and so started again: its clients would wait the whole time, each time. It is not
// asked whether it lives meanwhile (ping), which one that is at work may not answer.
func (u *upstream) noteAnswer(cs *sdk.ClientSession, answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.session != cs || u.silent == maxSilent { // another has been started, or is about to be
		return
	}
	if u.silent++; answered {
		u.silent = 0
	}
	if u.silent == maxSilent {
		close(u.hung)
	}
}

// both is what went wrong in our eyes, and how the program ended.
func both(ours, theirs error) error {
	if ours == nil {
		return theirs
	}
	return fmt.Errorf("%w (%w)", ours, theirs)
}

// whyEnded says how a server's program ended.
func whyEnded(res *sandbox.Result, err error) error {
	switch {
	case err != nil:
		return err
	case res.Status == sandbox.StatusDenied:
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrDenied, Problem: res.Reason, Hint: res.Hint, Rule: res.Rule}
	case res.Resource != "":
		return fmt.Errorf("its limit %s ended it", res.Resource)
	case res.Signal != "":
		return fmt.Errorf("it was ended by %s", res.Signal)
	case res.ExitCode != nil && res.Reason != "":
		return fmt.Errorf("it ended with exit code %d: %s", *res.ExitCode, res.Reason)
	case res.ExitCode != nil:
		return fmt.Errorf("it ended with exit code %d", *res.ExitCode)
	}
	return errors.New("it ended")
}

// clientOptions say what the server may ask of us: what its entry lets it. It gets an
// empty answer when it asks for roots, since the client's mean nothing in there.
func (u *upstream) clientOptions() *sdk.ClientOptions {
	changed := func() {
		select {
		case u.relist <- struct{}{}:
		default:
		}
	}
	o := &sdk.ClientOptions{
		Capabilities:                &sdk.ClientCapabilities{},
		MultiRoundTrip:              &sdk.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { changed() },
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { u.g.progress.pass(req.Params) },
	}
	if len(u.o.Server.Prompts) > 0 {
		o.PromptListChangedHandler = func(context.Context, *sdk.PromptListChangedRequest) { changed() }
	}
	if len(u.o.Server.Resources) > 0 {
		o.ResourceListChangedHandler = func(context.Context, *sdk.ResourceListChangedRequest) { changed() }
		o.ResourceUpdatedHandler = u.updated
	}
	if u.uses("elicitation") {
		o.ElicitationHandler = u.elicit
	}
	if u.uses("sampling") {
		o.CreateMessageHandler = u.sample
	}
	if u.uses("logging") {
		o.LoggingMessageHandler = u.told
	}
	return o
}

// list asks for the tools and offers those that are allowed and pinned.
func (u *upstream) list(ctx context.Context, cs *sdk.ClientSession) error {
	said, err := u.survey(ctx, cs)
	if err != nil {
		return err
	}
	pinned, err := said.pinned()
	if err != nil {
		return err
	}
	pin, err := u.g.o.Pins.Read(u.o.Name, u.o.Image, u.o.Call.Argv)
	if err != nil {
		return err
	}
	if pin == nil {
		if pin, err = u.pinOf(pinned, time.Now()); err == nil {
			pin, err = u.g.o.Pins.First(pin)
		}
		if err != nil {
			return err
		}
		u.g.o.Notice(fmt.Sprintf("server %s: seen for the first time; %d tools are approved as they are now", u.o.Name, len(said.tools)))
	}
	shown, not := u.catalog(said.tools, pin)
	has, prompts, more := u.others(said, pin)
	not = append(not, more...)
	u.mu.Lock()
	before := u.hidden
	u.tools, u.hidden, u.has, u.prompts, u.listed = shown, not, has, prompts, true
	u.mu.Unlock()
	u.g.publish()
	for _, h := range not { // said when it is so
		if h.Changed && !slices.Contains(before, h) {
			u.g.o.Notice(fmt.Sprintf("server %s: %s is not offered: %s; caisson mcp approve shows it", u.o.Name, called(h.Name), h.Why))
		}
	}
	return nil
}

// called is the name of something that is hidden, for people.
func called(name string) string {
	if strings.Contains(name, " ") { // a prompt, or a template
		return "the " + name
	}
	return "the tool " + name
}

// running is the session with the server, or why there is none.
func (u *upstream) running() (*sdk.ClientSession, *verdict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.session != nil {
		return u.session, nil
	}
	v := &verdict{Status: "unavailable", Reason: "server " + u.o.Name + " does not run: " + u.down}
	if !u.again.IsZero() {
		v.Hint = "it is started again in " + max(time.Until(u.again), 0).Round(time.Second/10).String()
	}
	return nil, v
}

func (o *Upstream) place(p policy.Pos) string {
	if o.Place == nil {
		return ""
	}
	return o.Place(p)
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/api/openai"
	v1 "github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
)

// defaultListen is where caisson serves by default: this machine alone.
const defaultListen = "127.0.0.1:7420"

// defaultPool is how many sandboxes of a kind wait for who asks next. Each holds
// what an idle sandbox does.
const defaultPool = 4

// defaultGrace is how long sandboxes wait for the next daemon when one was killed;
// maxGrace how long they may be told to.
const (
	defaultGrace = 5 * time.Minute
	maxGrace     = 24 * time.Hour
)

// serveFlags are the flags of caisson serve.
type serveFlags struct {
	listen, domain    string
	certFile, keyFile string
	behindProxy       bool
	policies          []string
	profiles          []string
	pool              int
	warm              []string
	warmMemory        string
	keepRecords       string
	keep              time.Duration // what it says
	grace             time.Duration
	keepRunning       bool
	sandboxesIn       string
	verbose, quiet    bool
}

func (a *app) serveCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve persistent sandboxes, and tools, over HTTP and to E2B's official clients",
		Long: `Serve persistent sandboxes, over HTTP, to those who have a key.

The official E2B SDKs work with it as they are; what it prints at its start is
all they need. The first start makes a key and shows it once, on a terminal; where
its output is none, and may be kept, the key is in the file first-key of the state
directory.

Only this machine reaches it, unless --listen says otherwise; then it wants TLS,
or your word that something in front of it sees to that. A sandbox has no network
and none of your files, unless the policy that its key is bound to grants them.

Ctrl-C, or SIGTERM, stops it: sandboxes that run are written down where the level
can, and go on with the next caisson serve of the same state directory; others end.
It ends within 45 s, whatever a sandbox does, and at once at a second signal.
When it is killed, or stopped with --keep-running, they run on, on gVisor, without a
network, until the next one takes them over, for as long as --grace says.`,
		Example: `  caisson serve
  caisson serve --policy ./agents.yaml --policy ci=./ci.yaml
  caisson serve --profile ci:sandboxes=20,cpus=8,memory=16GiB,disk=100GiB,max-timeout=1h
  caisson serve --listen 0.0.0.0:443 --domain sandboxes.example.com --tls-cert cert.pem --tls-key key.pem`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(contextOf(cmd), f) },
	}
	p := cmd.Flags()
	p.StringVar(&f.listen, "listen", defaultListen, "serve at `ADDRESS`, host:port; port 0 takes a free one")
	p.StringVar(&f.domain, "domain", "", "sandboxes have host names below `NAME`: PORT-ID.NAME (default localhost)")
	p.StringVar(&f.certFile, "tls-cert", "", "`FILE` with the certificate, for NAME and *.NAME, and those above it")
	p.StringVar(&f.keyFile, "tls-key", "", "`FILE` with its private key")
	p.BoolVar(&f.behindProxy, "behind-proxy", false, "serve plain HTTP to other machines: something in front speaks TLS and passes Host on")
	p.StringArrayVar(&f.policies, "policy", nil, "`[NAME=]FILE`: the policy of keys that are bound to NAME, or to none")
	p.StringArrayVar(&f.profiles, "profile", nil, "`[NAME:]FIELD=VALUE,...`: what all sandboxes of a key together may have that is bound to NAME, or to none: "+strings.Join(profileFields, ", "))
	a.inState(cmd)
	countVar(p, &f.pool, "pool", "", defaultPool, 0, session.MaxReady, "keep `N` sandboxes of a kind ready, made before they are asked for; 0 keeps none")
	p.StringArrayVar(&f.warm, "warm", nil, "`TEMPLATE=N`: keep N sandboxes of a template ready, or MIN..MAX, more where callers found none")
	p.StringVar(&f.warmMemory, "warm-memory", "", "all sandboxes that are kept ready may hold `SIZE` together, 4GiB (default no bound)")
	timeVar(p, &f.grace, "grace", defaultGrace, 0, maxGrace, "sandboxes run on for `TIME` when this process is killed, until the next one takes them over; 0 ends them with it")
	p.BoolVar(&f.keepRunning, "keep-running", false, "when it is stopped, leave sandboxes running for the next one, for --grace, instead of writing them down")
	p.StringVar(&f.sandboxesIn, "sandboxes-in", "", "as a service before systemd 254: have the control groups of sandboxes below another `SERVICE`, so that this one can be restarted beside them")
	p.StringVar(&f.keepRecords, "keep-records", "", "drop what is known of calls after `TIME`, 90d; the chain stays whole (default for ever)")
	p.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing for newcomers, and make no first key: for a service, whose output is kept")
	p.BoolVarP(&f.verbose, "verbose", "v", false, "log every request")
	return cmd
}

// serve serves until a signal or a fault.
func (a *app) serve(ctx context.Context, f *serveFlags) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer a.mustEnd(ctx)()
	defer runtime.KeepAlive(room())
	if f.keepRunning && f.grace == 0 {
		return &sandbox.Error{Op: "--keep-running", Kind: sandbox.ErrInvalid, Problem: "with --grace 0 sandboxes end with this process", Hint: "leave one of them out"}
	}
	if f.keep, err = keepRecords(f.keepRecords); err != nil {
		return err
	}
	if f.domain != "" && !domainName().MatchString(f.domain) {
		return &sandbox.Error{Op: "--domain " + sandbox.Quoted(f.domain), Kind: sandbox.ErrInvalid, Problem: "it is not a host name", Hint: "write one like sandboxes.example.com, without http://"}
	}
	certificate, err := f.certificate()
	if err != nil {
		return err
	}
	ln, err := f.open(ctx, certificate != nil)
	if err != nil {
		return err
	}
	defer ln.Close()
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
	public := f.publicURL(ln.Addr(), certificate != nil)
	h, err := a.house(ctx, f, log, func(id string) string {
		if f.behindProxy && f.domain == "" {
			return "" // it is not said where it is reached
		}
		return public + v1.PagePath + id
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	shown := keyShownBefore
	if !f.quiet {
		_, token, err := h.keys.First(ctx)
		if err != nil {
			return err
		}
		if shown, err = a.showFirst(token, h.state, shown); err != nil {
			return err
		}
	}
	stats := api.NewStats()
	stats.Sandboxes = func() map[string]int {
		n := h.boxes.Counts()
		n["ready"] = h.boxes.WarmPool().Waiting
		return n
	}
	stats.Ready = func() (taken, missed int64) { p := h.boxes.WarmPool(); return p.Taken, p.Missed }
	memory := new(api.Memory)
	models := mcpFrontend(h, memory)
	own := v1.New(v1.Options{
		Sandboxes: h.boxes, Keys: h.keys, Approvals: h.approvals, Domain: f.domainAt(ln.Addr()), Secure: certificate != nil || f.behindProxy, Memory: memory, Version: versions(time.Now()).Caisson,
		Rest: withMCP(models, api.Operator(stats, h.boxes.Readiness, func(ctx context.Context, token string) error { _, err := h.keys.Authenticate(ctx, token); return err })),
	})
	containers := openai.New(openai.Options{Sandboxes: h.boxes, Keys: h.keys, Memory: memory, Rest: own})
	frontend := e2b.New(e2b.Options{Sandboxes: h.boxes, Keys: h.keys, Domain: f.domainAt(ln.Addr()), Memory: memory, Rest: containers})
	server := api.New(frontend, stats, log)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln, certificate) }()
	if !f.quiet {
		a.greet(public, shown, h.unwritten)
		if shown != keyShownBefore && a.out.failed != nil {
			a.say("the first key could not be shown; caisson keys create makes another")
		}
	}
	log.Info("ready", "listen", ln.Addr().String())
	select {
	case err = <-served:
	case <-ctx.Done():
		stop() // a second signal ends it at once
		log.Info("ending")
	}
	return errors.Join(err, h.end(server, models, frontend, containers, own))
}

// shutdownTimeout is how long sandboxes may take to end, and after that
// answers under way. See mustEnd for what they cannot keep.
const (
	shutdownTimeout = 30 * time.Second
	answerTimeout   = 5 * time.Second
)

// end ends what was served: sandboxes first, which breaks their streams off,
// then what else is under way.
func (h *house) end(server *api.Server, models *mcp.Handler, frontends ...interface{ Close() }) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	models.Close()
	err := h.endSandboxes(ctx)
	drain, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	server.Shutdown(drain)
	for _, d := range frontends {
		d.Close()
	}
	return err
}

// open listens. Whether only this machine can reach it is asked of the socket,
// not of the name it was opened by.
func (f *serveFlags) open(ctx context.Context, secure bool) (net.Listener, error) {
	op := "listen at " + f.listen
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		e := &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the address cannot be listened at", Hint: "give another one with --listen HOST:PORT", Cause: err}
		if errors.Is(err, syscall.EADDRINUSE) {
			e.Problem, e.Hint = "another program listens there", "end it, or take another port: --listen 127.0.0.1:0"
		}
		return nil, e
	}
	if at, ok := ln.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() || secure || f.behindProxy {
		return ln, nil
	}
	ln.Close()
	return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrDenied, Rule: "built-in: keys travel encrypted",
		Problem: "other machines could reach it, and without TLS keys could be read on the way",
		Hint:    "give --tls-cert and --tls-key, or --behind-proxy if something in front speaks TLS"}
}

func (f *serveFlags) certificate() (*tls.Certificate, error) {
	if f.certFile == "" && f.keyFile == "" {
		return nil, nil
	}
	c, err := readCertificate(f.certFile, f.keyFile)
	if err != nil {
		return nil, &sandbox.Error{Op: "certificate", Kind: sandbox.ErrInvalid, Problem: "the files of --tls-cert and --tls-key are not a certificate and its key",
			Hint: "give both, as PEM", Cause: err}
	}
	return &c, nil
}

// readCertificate reads a certificate, with those above it, and its key.
func readCertificate(certFile, keyFile string) (c tls.Certificate, err error) {
	var pair [2][]byte
	for i, name := range []string{certFile, keyFile} {
		if pair[i], err = files.Read(name, maxPEM); err != nil {
			return c, err
		}
	}
	return tls.X509KeyPair(pair[0], pair[1])
}

const maxPEM = 1 << 20 // bytes

// domainName is what names of sandboxes can stand before: a host name, and perhaps a
// port.
var domainName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?(:[0-9]{1,5})?$`)
})

// domainAt is below what sandboxes have their names, with the port.
func (f *serveFlags) domainAt(at net.Addr) string {
	name := f.domain
	if name == "" {
		name = "localhost"
	}
	_, port, _ := net.SplitHostPort(at.String())
	if f.behindProxy && f.domain != "" || strings.Contains(name, ":") || port == "443" {
		return name // the port that clients see is not ours
	}
	return net.JoinHostPort(name, port)
}

// publicURL is where clients find it, as far as that is known here.
func (f *serveFlags) publicURL(at net.Addr, secure bool) string {
	switch {
	case (secure || f.behindProxy) && f.domain != "":
		return "https://api." + f.domainAt(at)
	case secure:
		return "https://" + at.String()
	}
	return "http://" + at.String()
}

// keyShownBefore stands where a key would, from the second start on.
const keyShownBefore = "…    # shown when it was made; caisson keys create makes another"

// firstKey is the file of the state directory that the first key is in where no terminal
// shows it.
const firstKey = "first-key"

// showFirst is how the first key is shown: as it is on a terminal. Any other output may be a
// log that is kept and read by others, so there it is in a file of the state directory, and
// what is shown is the command that reads it. token is empty where there was a key before.
func (a *app) showFirst(token, state, otherwise string) (string, error) {
	switch {
	case token == "":
		return otherwise, nil
	case isTerminal(a.out.file):
		return token, nil
	}
	file := filepath.Join(state, firstKey)
	_ = os.Remove(file) // of keys that are no more
	if err := files.Make(file, []byte(token+"\n")); err != nil {
		return "", &sandbox.Error{Op: file, Kind: sandbox.ErrUnavailable, Problem: "the first key cannot be written there", Cause: err,
			Hint: "make one: caisson keys create"}
	}
	return "$(cat " + sandbox.Quoted(file) + ")", nil
}

// greet says what a newcomer needs; shown is the key, or what stands for it.
func (a *app) greet(url, shown string, unwritten bool) {
	network := ""
	if unwritten {
		network = `
Without a policy sandboxes reach nothing (docs/e2b.md). For package indexes, or all of the internet:
  caisson serve --policy FILE    # with "version: 1" and "network: {allow: [pypi.org, files.pythonhosted.org]}", or "[internet]"
`
	}
	fmt.Fprintf(a.out, `caisson serves sandboxes at %[1]s

  export E2B_API_URL=%[1]s
  export E2B_SANDBOX_URL=%[1]s
  export E2B_API_KEY=%[2]s

Python (pip install e2b):
  from e2b import Sandbox
  with Sandbox.create() as sandbox:
      print(sandbox.commands.run("uname -a").stdout)

JavaScript (npm install e2b):
  import { Sandbox } from 'e2b'
  const sandbox = await Sandbox.create()
  console.log((await sandbox.commands.run('uname -a')).stdout)
  await sandbox.kill()

curl (docs/api.md):
  id=$(curl -s "$E2B_API_URL/v1/sandboxes" -H "X-API-Key: $E2B_API_KEY" --json '{}' | grep -o 'i[0-9a-z]\{20\}' | head -1)
  curl -s "$E2B_API_URL/v1/sandboxes/$id/exec" -H "X-API-Key: $E2B_API_KEY" --json '{"shell": "uname -a"}'
  curl -s "$E2B_API_URL/v1/sandboxes/$id" -H "X-API-Key: $E2B_API_KEY" -X DELETE

This command line:
  export CAISSON_URL=%[1]s CAISSON_API_KEY=$E2B_API_KEY
  caisson sandbox shell "$(caisson sandbox create)"
%[3]s
`, url, shown, network)
}

// house is what a daemon stands on.
type house struct {
	boxes     *persistent.Sandboxes
	keys      *persistent.Keys
	approvals *question.Approvals
	state     string // the state directory
	unwritten bool   // no policy is given, by the system neither
	ended     bool
	closers   []func() error
}

// endSandboxes ends them once. Those that have not ended in time are an error.
func (h *house) endSandboxes(ctx context.Context) error {
	if h.ended {
		return nil
	}
	h.ended = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return h.boxes.Close(ctx)
}

func (h *house) close() error {
	var errs []error
	for i := len(h.closers) - 1; i >= 0; i-- {
		errs = append(errs, h.closers[i]())
	}
	return errors.Join(errs...)
}

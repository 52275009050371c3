// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// execFlags are the flags of caisson sandbox exec.
type execFlags struct {
	env, envFiles         []string
	dir, user             string
	timeout               time.Duration
	interactive, tty, raw bool
}

func (a *app) sandboxExec(d *daemon) *cobra.Command {
	f := &execFlags{}
	return a.sub(d, sub{
		use: "exec ID [--] COMMAND [ARG...]", short: "Run a program in a sandbox", args: some(2, 0, "the ID of a sandbox and a command"),
		long: `Run a program in a sandbox, with its input, output, signals and exit code passed
on, as by caisson run. 124 says that its time was over, 126 that the policy refused
it, 137 that a limit ended it, 125 that it could not be run.`,
		example: `  caisson sandbox exec ID -- python3 -c 'print(2**100)'
  caisson sandbox exec --workdir /home/user/src -e CI=1 ID -- make test
  caisson sandbox exec -t ID -- top
  caisson sandbox exec --json ID -- uname -a`,
		flags: func(cmd *cobra.Command) {
			cmd.Annotations = map[string]string{emptyIsOne: ""}
			p := cmd.Flags()
			p.SetInterspersed(false)
			p.StringArrayVarP(&f.env, "env", "e", nil, "set a variable: `NAME=VALUE`, or NAME to pass yours on")
			p.StringArrayVar(&f.envFiles, "env-file", nil, "set the variables of a `FILE` of NAME=VALUE lines")
			p.StringVar(&f.dir, "workdir", "", "begin in `DIR`, inside")
			p.StringVar(&f.user, "user", "", "with the rights of `USER`: root, where the template has it")
			timeVar(p, &f.timeout, "timeout", 0, leastTime, maxTime, "end it after so long")
			p.BoolVarP(&f.interactive, "interactive", "i", true, "pass standard input on; =false for programs that a policy asks people about")
			p.BoolVarP(&f.tty, "tty", "t", false, "give it a terminal")
			p.BoolVar(&f.raw, "raw", false, "pass its output to a terminal unfiltered")
		},
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) error {
			argv := args[1:]
			if cmd.ArgsLenAtDash() == 0 { // else the command would be taken for it
				return usage(cmd, "there is no ID before --", "caisson sandbox ls lists them; a variable that it comes from may not be set")
			}
			if args[0] == "" {
				return usage(cmd, "the ID is empty", "caisson sandbox ls lists them; a variable that it comes from may not be set")
			}
			if argv[0] == "--" { // flags end at the ID
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return usage(cmd, "there is no command", "caisson sandbox exec ID -- uname -a")
			}
			return a.speak(ctx, cmd, d, c, f, args[0], argv)
		},
	})
}

func (a *app) sandboxShell(d *daemon) *cobra.Command {
	f := &execFlags{interactive: true}
	return a.sub(d, sub{
		use: "shell ID", short: "Open a shell in a sandbox", args: some(1, 1, "the ID of a sandbox"),
		example: "  caisson sandbox shell ID",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&f.user, "user", "", "with the rights of `USER`: root, where the template has it")
			cmd.Flags().StringVar(&f.dir, "workdir", "", "begin in `DIR`, inside")
		},
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) error {
			f.tty = isTerminal(a.in)
			return a.speak(ctx, cmd, d, c, f, args[0], []string{"sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l"})
		},
	})
}

// speak runs a program with the terminal, the signals and the streams of this
// process, and ends as it does.
func (a *app) speak(ctx context.Context, cmd *cobra.Command, d *daemon, c *client.Client, f *execFlags, id string, argv []string) error {
	if d.json && f.tty {
		return usage(cmd, "--json and -t do not go together", "drop one of them")
	}
	env, _, err := readEnv(f.env, f.envFiles)
	if err != nil {
		return err
	}
	e := client.Exec{Command: argv, Env: env, Cwd: f.dir, User: f.user, Timeout: client.In(f.timeout)}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var terminal atomic.Pointer[tty]
	sig := listen(end, a.giveUp(&terminal))
	defer sig.stop()
	over := make(chan struct{})
	defer close(over)
	streams := client.IO{Signals: signalNames(sig.forward, over)}
	var stdin *os.File
	if f.interactive {
		stdin = a.in
		streams.Stdin = stdin
	}
	as := &runFlags{programFlags: programFlags{tty: f.tty}, outputFlags: outputFlags{raw: f.raw}}
	call := &session.Call{}
	t, err := a.attach(as, call, stdin)
	if err != nil {
		return err
	}
	terminal.Store(t)
	defer t.restore()
	if t.in != nil {
		streams.Stdin = t.in
	}
	if shown := call.TTY; shown != nil {
		e.Terminal = &client.Terminal{Rows: shown.Size.Rows, Cols: shown.Size.Cols, Term: call.Term}
		streams.Resize = sizes(shown.Resize, over)
	}
	var out, errs bytes.Buffer
	finish := func() {}
	if d.json {
		streams.Stdout, streams.Stderr = &out, &errs
	} else {
		var stop1, stop2 func()
		streams.Stdout, stop1 = a.output(a.out.file, as)
		streams.Stderr, stop2 = a.output(a.err, as)
		finish = func() { stop1(); stop2() }
	}
	r, err := carried(ctx, c, id, e, streams)
	finish()
	t.restore()
	if got := sig.got(); got != 0 && r == nil {
		a.code = 128 + int(got)
		a.say("ended by %s", signalName(got))
		return nil
	}
	if err != nil {
		return err
	}
	res := resultOf(r)
	res.Stdout, res.Stderr = out.Bytes(), errs.Bytes()
	a.code = exitCode(res)
	a.show(&runFlags{outputFlags: outputFlags{json: d.json}, set: cmd.Flags()}, res, nil)
	return nil
}

// maxKept is how many bytes of each stream the daemon keeps of a program that is
// not spoken with.
const maxKept = 16 << 20

// carried runs a program. One without input or a terminal is handed over whole,
// which people can be asked about.
func carried(ctx context.Context, c *client.Client, id string, e client.Exec, io client.IO) (*client.Result, error) {
	if io.Stdin != nil || e.Terminal != nil {
		return c.Attach(ctx, id, e, io)
	}
	e.Keep = maxKept
	r, err := c.Exec(ctx, id, e)
	if err != nil {
		return nil, err
	}
	_, err = io.Stdout.Write(r.Stdout)
	_, errs := io.Stderr.Write(r.Stderr)
	return r, errors.Join(err, errs)
}

// resultOf is what came of a program in the words of this side.
func resultOf(r *client.Result) *sandbox.Result {
	res := &sandbox.Result{
		Status: sandbox.Status(r.Status), ExitCode: r.ExitCode, Signal: r.Signal, Reason: r.Reason, Rule: r.Rule, Resource: sandbox.LimitName(r.Resource),
		Truncated: r.Truncated, TruncatedAt: r.TruncatedAt, WallMS: r.WallMS, CPUMS: r.CPUMS, MemoryPeakBytes: r.MemoryPeak,
	}
	for _, f := range r.Findings {
		res.Findings = append(res.Findings, sandbox.Finding(f))
	}
	for _, l := range r.LimitsHit {
		res.LimitsHit = append(res.LimitsHit, sandbox.LimitName(l))
	}
	if n := r.Network; n != nil {
		res.Network = &sandbox.NetworkUse{Connected: n.Connected, Denied: n.Denied, Queries: n.Queries, Sent: n.Sent, Received: n.Received}
	}
	if p := r.Posture; p != nil {
		res.Posture = sandbox.Posture{Isolation: p.Isolation, Network: p.Network, Root: p.Root, Commands: p.Commands, Code: p.Code, Limits: map[sandbox.LimitName]sandbox.Enforcement{}}
		for l, how := range p.Limits {
			res.Posture.Limits[sandbox.LimitName(l)] = sandbox.Enforcement(how)
		}
	}
	return res
}

// signalNames passes signals on by their names, until over.
func signalNames(in <-chan syscall.Signal, over <-chan struct{}) <-chan string {
	return passed(in, over, signalName)
}

func sizes(in <-chan sandbox.WindowSize, over <-chan struct{}) <-chan client.Terminal {
	return passed(in, over, func(z sandbox.WindowSize) client.Terminal { return client.Terminal{Rows: z.Rows, Cols: z.Cols} })
}

func passed[T, U any](in <-chan T, over <-chan struct{}, as func(T) U) <-chan U {
	out := make(chan U)
	go func() {
		for {
			select {
			case <-over:
				return
			case v := <-in:
				select {
				case out <- as(v):
				case <-over:
					return
				}
			}
		}
	}()
	return out
}

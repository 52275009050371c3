// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// replFlags are the flags of caisson repl: which sandbox, and which context of it.
type replFlags struct {
	runFlags
	daemon
	id, context, pictures string
	piece                 time.Duration // how long a piece may take
}

func (a *app) replCommand() *cobra.Command {
	f := &replFlags{}
	cmd := &cobra.Command{
		Use:   "repl [flags]",
		Short: "Run code piece by piece in a sandbox that keeps its state",
		Long: `Read code, run it in a sandbox, and show what it prints and what it comes to.
Variables, imports, functions and files stay from one piece to the next.

The sandbox is made for it and ends with it; --sandbox takes one of caisson serve,
which goes on. Its languages are python, javascript, typescript and bash, and what
has a Jupyter kernel in it.

At a terminal an open bracket, string or block goes on on the next line; an empty
line runs it. Ctrl-C interrupts what runs and keeps the state, or drops what is typed;
Ctrl-D ends. The up key brings earlier lines back, Tab completes words that were seen.
Pictures are shown by kitty, iTerm2 and terminals that show theirs, and are saved
elsewhere.

What does not come from a terminal is one piece of code. The exit code is 0 then, or 1
when it raised or its context was lost, 124 when its time was over, 126 when the
policy refused it.`,
		Example: `  caisson repl
  caisson repl --lang js
  caisson repl --mount ./data.csv --template data-analysis
  caisson repl --sandbox ID --lang bash
  echo '2**100' | caisson repl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(contextOf(cmd), syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			defer a.mustEnd(ctx)()
			return a.repl(ctx, cmd, f)
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.set, f.codeGiven, f.interactive = fs, true, true
	fs.StringVar(&f.lang, "lang", "python", "`LANGUAGE`: python, js, ts, bash, or the name of a Jupyter kernel")
	fs.StringVar(&f.context, "context", "", "go on in the context `NAME` of the sandbox")
	fs.StringVar(&f.id, "sandbox", "", "use the sandbox `ID` of caisson serve")
	fs.StringVar(&f.pictures, "pictures", "", "save pictures in `DIR`")
	fs.StringVar(&f.template, "template", "", "run on a template that was built here: `NAME`[:TAG]")
	fs.StringVar(&f.image, "image", "", "run on a container `IMAGE`: python:3.14, ./image.tar, oci:DIR")
	fs.StringArrayVar(&f.mounts, "mount", nil, "show a file or directory: `SRC`[:TARGET][:ro|rw|cow|rw,shared] (ro), with \\: for a colon in a name")
	fs.StringArrayVar(&f.allow, "allow", nil, "let connections out: `HOST`[:PORT], '*.HOST', or preset:pip, as for run")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set a variable: `NAME`=VALUE, or NAME to pass yours on")
	fs.StringArrayVar(&f.envFiles, "env-file", nil, "set the variables of a `FILE` of NAME=VALUE lines")
	policyVar(fs, &f.policy, "policy `FILE` that bounds it")
	fs.StringVar(&f.isolation, "isolation", "", "`LEVEL` of isolation; caisson doctor lists them (gvisor)")
	f.limits.add(fs, persistent.LivingLimits())
	fs.Lookup("timeout").Usage = "interrupt a piece after `TIME`, and keep the state: 30s, 2m"
	fs.BoolVar(&f.bestEffort, "best-effort", false, "run even if a limit cannot be enforced here")
	fs.BoolVar(&f.raw, "raw", false, "pass output to a terminal unfiltered")
	fs.StringVar(&f.url, "url", "", "with --sandbox: the daemon is at `URL` (or $CAISSON_URL; "+client.DefaultURL+")")
	fs.StringVar(&f.key, "api-key", "", "with --sandbox: ask with `KEY` (or $CAISSON_API_KEY, which other users cannot see)")
	a.inState(cmd)
	_ = cmd.RegisterFlagCompletionFunc("image", a.completeImages)
	_ = cmd.RegisterFlagCompletionFunc("template", a.completeTemplates)
	_ = cmd.RegisterFlagCompletionFunc("sandbox", completeSandboxes(&f.daemon))
	a.completeLevels(cmd)
	completeWords(cmd, "lang", interpreter.Python, interpreter.JavaScript, interpreter.TypeScript, interpreter.Bash)
	return cmd
}

// notWithSandbox are the flags that say what a sandbox is made of.
var notWithSandbox = []string{"template", "image", "mount", "allow", "env", "env-file", "policy", "isolation", "best-effort", "state"}

// repl is the whole command.
func (a *app) repl(ctx context.Context, cmd *cobra.Command, f *replFlags) (err error) {
	call, _, err := a.call(cmd, &f.runFlags, nil)
	if err != nil {
		return err
	}
	f.piece = call.Limits.Wall // and not the sandbox's
	call.Limits.Wall = 0
	delete(call.Limits.Explicit, sandbox.LimitWall)
	var c cells
	if f.id != "" {
		for _, name := range notWithSandbox {
			if cmd.Flags().Changed(name) {
				return usage(cmd, "--"+name+" and --sandbox do not go together", "the sandbox has what it was made with")
			}
		}
		if len(call.Limits.Explicit) > 0 {
			return usage(cmd, "limits and --sandbox do not go together, but for --timeout", "the sandbox has what it was made with")
		}
		c, err = f.remote()
	} else {
		starting, stop := signal.NotifyContext(ctx, os.Interrupt)
		c, err = a.local(starting, f, call)
		stop()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	r := &repl{app: a, flags: f, cells: c, language: interpreter.Language(f.lang), pushed: make(chan os.Signal, 2)}
	signal.Notify(r.pushed, os.Interrupt)
	defer signal.Stop(r.pushed)
	r.show = newCellShow(a, f)
	defer r.show.end()
	if isTerminal(a.in) {
		return r.talk(ctx)
	}
	code, err := session.ReadSource("standard input", a.in)
	if err != nil {
		return err
	}
	return r.once(ctx, string(code))
}

// cells are the contexts of one sandbox, as a repl uses them.
type cells interface {
	// run runs code, and interrupt what runs.
	run(ctx context.Context, language, in, code string, on func(interpreter.Event) error) error
	interrupt(ctx context.Context, language, in string) error
	end() error
}

// remote are those of a sandbox of a daemon.
func (f *replFlags) remote() (cells, error) {
	c, err := f.dial()
	if err != nil {
		return nil, err
	}
	return &daemonCells{c, f.id, f.piece}, nil
}

type daemonCells struct {
	c     *client.Client
	id    string
	piece time.Duration
}

func (d *daemonCells) run(ctx context.Context, language, in, code string, on func(interpreter.Event) error) error {
	_, err := d.c.RunCell(ctx, d.id, client.Cell{Code: code, Language: language, Context: in, Timeout: client.In(d.piece)}, on)
	return err
}

func (d *daemonCells) interrupt(ctx context.Context, language, in string) error {
	return d.c.InterruptContext(ctx, d.id, cmp.Or(in, defaultContext(language)))
}

func (d *daemonCells) end() error { d.c.Close(); return nil }

// defaultContext is the ID of a language's default context.
func defaultContext(language string) string {
	if language == interpreter.TypeScript {
		return interpreter.JavaScript
	}
	return language
}

// localCells are those of a sandbox that is made here.
type localCells struct {
	house  *house
	handle *persistent.Handle
	piece  time.Duration
}

// local makes a sandbox.
func (a *app) local(ctx context.Context, f *replFlags, call *session.Call) (_ cells, err error) {
	call.Source = nil
	h, key, err := a.privateHouse(ctx, f.policy)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	key.Owner = actor()
	w := persistent.Create{Frontend: "cli", Env: call.Env, Limits: call.Limits, Isolation: call.Isolation, Wishes: &call.Call, Lifetime: persistent.Lifetime{Timeout: persistent.Longest}}
	if len(call.Network) > 0 {
		w.Network = &persistent.NetworkWish{Allow: call.Network}
	}
	b, err := h.boxes.Create(ctx, key, w)
	if err != nil {
		return nil, err
	}
	return &localCells{h, h.boxes.Handle(key, b.ID), f.piece}, nil
}

func (l *localCells) run(ctx context.Context, language, in, code string, on func(interpreter.Event) error) error {
	ended := false
	call := &session.Call{Frontend: "cli", Source: &session.Source{Language: language, Code: []byte(code), MakeContext: in != ""}}
	if l.piece > 0 {
		call.Limits = sandbox.Limits{Wall: l.piece, Explicit: map[sandbox.LimitName]bool{sandbox.LimitWall: true}}
	}
	res, err := l.handle.RunCell(ctx, call, in, func(e interpreter.Event) error {
		ended = ended || e.Type == interpreter.End
		return on(e)
	})
	if err == nil && !ended { // from outside
		err = on(interpreter.Event{Type: interpreter.End, End: &interpreter.Ending{Status: interpreter.Interrupted, Reason: res.Reason}})
	}
	return err
}

func (l *localCells) interrupt(ctx context.Context, language, in string) error {
	return l.handle.InterruptContext(ctx, "", cmp.Or(in, defaultContext(language)))
}

func (l *localCells) end() error { return l.house.close() }

// repl is a conversation with a context.
type repl struct {
	*app
	flags    *replFlags
	cells    cells
	language string
	pushed   chan os.Signal // Ctrl-C
	show     *cellShow
}

// once runs one piece of code, and ends as it does.
func (r *repl) once(ctx context.Context, code string) error {
	end, err := r.cell(ctx, code)
	if err != nil || end == nil {
		return err
	}
	switch end.Status {
	case interpreter.Done:
	case interpreter.TimedOut:
		r.code = exitTimeout
	default:
		r.code = exitFault
	}
	return nil
}

// cell runs one piece of code and shows what it tells. Ctrl-C interrupts it; a second one does
// not wait for that.
func (r *repl) cell(ctx context.Context, code string) (end *interpreter.Ending, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(over)
	watching.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-r.pushed:
				if n > 0 || r.cells.interrupt(ctx, r.language, r.flags.context) != nil {
					cancel()
				}
			}
		}
	})
	err = r.cells.run(ctx, r.language, r.flags.context, code, func(e interpreter.Event) error {
		if e.Type == interpreter.End {
			end = e.End
		}
		return r.show.event(e)
	})
	return end, err
}

// talk reads pieces of code from a terminal, and runs them, until there are no more.
func (r *repl) talk(ctx context.Context) error {
	in := newReplInput(r.in, r.out.file, r.language)
	defer in.close()
	for ctx.Err() == nil {
		for len(r.pushed) > 0 { // what it was for has ended
			<-r.pushed
		}
		code, err := in.read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := r.cell(ctx, code); err != nil {
			if errors.Is(err, sandbox.ErrNotFound) && r.flags.id == "" || errors.Is(err, sandbox.ErrUnavailable) {
				return err // the sandbox has gone
			}
			r.fail(r.command(), err)
		}
	}
	return nil
}

// command is for fail, which looks at its flags.
func (r *repl) command() *cobra.Command { return &cobra.Command{} }

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// daemon is which caisson serve is meant, and who asks.
type daemon struct {
	url, key string
	json     bool
}

func (d *daemon) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.url, "url", "", "the daemon is at `URL` (or $CAISSON_URL; "+client.DefaultURL+")")
	f.StringVar(&d.key, "api-key", "", "ask with `KEY` (or $CAISSON_API_KEY, which other users cannot see)")
	f.BoolVar(&d.json, "json", false, "print JSON")
}

// dial makes the client.
func (d *daemon) dial() (*client.Client, error) {
	o := client.Options{URL: d.url, Key: d.key}
	if o.URL == "" {
		o.URL = os.Getenv("CAISSON_URL")
	}
	if o.Key == "" {
		o.Key = os.Getenv("CAISSON_API_KEY")
	}
	if o.Key == "" {
		return nil, &sandbox.Error{Op: "daemon", Kind: sandbox.ErrInvalid, Problem: "there is no key to ask with", Hint: "set CAISSON_API_KEY to one that caisson keys create made"}
	}
	return client.New(o)
}

// sub is a subcommand of caisson sandbox that takes arguments of one kind.
type sub struct {
	use, short, long, example string
	args                      cobra.PositionalArgs
	flags                     func(*cobra.Command)
	run                       func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) error
}

func (a *app) sub(d *daemon, s sub) *cobra.Command {
	cmd := &cobra.Command{
		Use: s.use, Short: s.short, Long: s.long, Example: s.example, Args: s.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := d.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return s.run(contextOf(cmd), cmd, c, args)
		},
		SilenceErrors: true, SilenceUsage: true,
		ValidArgsFunction: completeSandboxes(d),
	}
	if s.flags != nil {
		s.flags(cmd)
	}
	d.add(cmd)
	return cmd
}

// some wants that many arguments, and says what they are.
func some(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return usage(cmd, "it takes "+what, cmd.CommandPath()+" --help")
		}
		return nil
	}
}

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Make and use sandboxes that live on, of a caisson serve here or elsewhere",
		Long: `Make and use sandboxes that live on, of a caisson serve on this machine or another.

CAISSON_URL says where it is, CAISSON_API_KEY who asks.`,
		Example: `  export CAISSON_API_KEY=e2b_…
  caisson sandbox create --timeout 1h
  caisson sandbox exec ID -- python3 -c 'print(2**100)'
  caisson sandbox shell ID
  caisson sandbox cp ./data.csv ID:data.csv
  caisson sandbox kill ID`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	d := &daemon{}
	cmd.AddCommand(a.sandboxCreate(d), a.sandboxList(d), a.sandboxExec(d), a.sandboxShell(d), a.sandboxCopy(d), a.sandboxLogs(d), a.sandboxStats(d),
		a.sandboxPause(d), a.sandboxResume(d), a.sandboxExtend(d), a.sandboxSnapshot(d), a.sandboxSnapshots(d), a.sandboxFork(d), a.sandboxKill(d), a.sandboxURL(d))
	return cmd
}

// completeSandboxes offers the key's sandboxes to shells.
func completeSandboxes(d *daemon) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(contextOf(cmd), 2*time.Second)
		defer cancel()
		c, err := d.dial()
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		defer c.Close()
		p, err := c.List(ctx, client.Filter{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var out []string
		for _, b := range p.Sandboxes {
			if strings.HasPrefix(b.ID, word) {
				out = append(out, b.ID+"\t"+printable(b.State+" "+b.Name))
			}
		}
		return out, cobra.ShellCompDirectiveDefault
	}
}

// pairs reads NAME=VALUE words.
func pairs(flag string, words []string) (map[string]string, error) {
	var m map[string]string
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, &sandbox.Error{Op: flag + " " + printable(w), Kind: sandbox.ErrInvalid, Problem: "it is not NAME=VALUE"}
		}
		if m == nil {
			m = map[string]string{}
		}
		m[name] = value
	}
	return m, nil
}

func (a *app) sandboxCreate(d *daemon) *cobra.Command {
	var w client.Create
	var metadata, env, envFiles, allow, deny []string
	var timeout, idle time.Duration
	var memory, disk string
	var cpus float64
	var processes int
	var pause, none bool
	return a.sub(d, sub{
		use: "create", short: "Make a sandbox, and print its ID", args: noArgs,
		example: `  caisson sandbox create
  caisson sandbox create --name build --timeout 1h --on-timeout-pause --memory 1GiB
  caisson sandbox create --snapshot ID --json`,
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringVar(&w.Template, "template", "", "make it of the template `NAME` (base)")
			f.StringVar(&w.Snapshot, "snapshot", "", "go on from the snapshot `ID`")
			f.StringVar(&w.Name, "name", "", "take the sandbox called `NAME`, or call the new one so")
			f.StringArrayVar(&metadata, "metadata", nil, "note `NAME=VALUE` with it")
			f.StringArrayVarP(&env, "env", "e", nil, "set a variable of every program in it: `NAME=VALUE`, or NAME to pass yours on")
			f.StringArrayVar(&envFiles, "env-file", nil, "set the variables of a `FILE` of NAME=VALUE lines")
			f.DurationVar(&timeout, "timeout", 0, "let it live for so long (5m)")
			f.DurationVar(&idle, "idle", 0, "end it when it goes unused for so long")
			f.BoolVar(&pause, "on-timeout-pause", false, "pause it when its time is over, instead of killing it")
			f.BoolVar(&w.AutoResume, "auto-resume", false, "wake it when it is used while it is paused")
			f.BoolVar(&none, "no-network", false, "no network, whatever the policy grants")
			f.StringArrayVar(&allow, "allow", nil, "of the network that the policy grants, take `HOST[:PORT]` only")
			f.StringArrayVar(&deny, "deny", nil, "take `HOST[:PORT]` away from it")
			f.StringVar(&memory, "memory", "", "memory of all its programs: 512MiB")
			f.StringVar(&disk, "disk", "", "space that it can write: 1GiB")
			f.Float64Var(&cpus, "cpus", 0, "share of processors: 0.5")
			f.IntVar(&processes, "processes", 0, "processes and threads: 256")
			f.StringVar(&w.Isolation, "isolation", "", "level of isolation")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, _ []string) (err error) {
			if w.Metadata, err = pairs("--metadata", metadata); err != nil {
				return err
			}
			if w.Env, err = readEnv(env, envFiles); err != nil {
				return err
			}
			w.Timeout, w.Idle = client.In(timeout), client.In(idle)
			if pause {
				w.OnTimeout = "pause"
			}
			if none || len(allow)+len(deny) > 0 {
				w.Network = &client.Network{None: none, Allow: allow, Deny: deny}
			}
			l := client.Limits{CPUs: cpus, Processes: processes}
			for _, s := range []struct {
				flag, text string
				to         *int64
			}{{"--memory", memory, &l.Memory}, {"--disk", disk, &l.Disk}} {
				if s.text == "" {
					continue
				}
				if *s.to, err = policy.ParseSize(s.text); err != nil {
					return &sandbox.Error{Op: s.flag, Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
				}
			}
			if l != (client.Limits{}) {
				w.Limits = &l
			}
			b, err := c.Create(ctx, w)
			if err != nil {
				return err
			}
			a.showBox(d, b)
			return nil
		},
	})
}

// showBox prints a sandbox: its ID, or all as JSON.
func (a *app) showBox(d *daemon, b *client.Sandbox) {
	if d.json {
		a.printJSON(b)
		return
	}
	fmt.Fprintln(a.out, printable(b.ID))
}

// table prints lines of columns.
func (a *app) table(head string, lines func(w *tabwriter.Writer)) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	lines(w)
	return w.Flush()
}

func (a *app) sandboxList(d *daemon) *cobra.Command {
	var f client.Filter
	var metadata []string
	return a.sub(d, sub{
		use: "ls", short: "List sandboxes, newest first", args: noArgs,
		example: `  caisson sandbox ls
  caisson sandbox ls --state paused --metadata team=data --json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringSliceVar(&f.States, "state", nil, "those that are `STATE`: running, paused")
			cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "those with `NAME=VALUE`")
			cmd.Flags().StringVar(&f.Template, "template", "", "those of the template `NAME`")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, _ []string) (err error) {
			if f.Metadata, err = pairs("--metadata", metadata); err != nil {
				return err
			}
			all := []client.Sandbox{}
			for {
				p, err := c.List(ctx, f)
				if err != nil {
					return err
				}
				all = append(all, p.Sandboxes...)
				if f.Cursor = p.Next; p.Next == "" {
					break
				}
			}
			if d.json {
				a.printJSON(all)
				return nil
			}
			return a.table("ID\tNAME\tSTATE\tTEMPLATE\tCREATED\tENDS", func(w *tabwriter.Writer) {
				for _, b := range all {
					ends := "-"
					if b.State == "running" && !b.Ends.IsZero() {
						ends = b.Ends.Local().Format(time.DateTime)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", dash(b.ID), dash(b.Name), dash(b.State), dash(b.Template), b.Created.Local().Format(time.DateTime), ends)
				}
			})
		},
	})
}

func (a *app) sandboxPause(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "pause ID", short: "Stop a sandbox, with its memory, until it is resumed or killed", args: some(1, 1, "the ID of a sandbox"),
		example: "  caisson sandbox pause ID",
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			b, err := c.Pause(ctx, args[0])
			if err != nil {
				return err
			}
			if b.Kept == "memory" && !d.json {
				a.note("it stays in memory, and ends with the daemon")
			}
			a.showBox(d, b)
			return nil
		},
	})
}

// timed is a subcommand about one sandbox and a time that it gets.
func (a *app) timed(d *daemon, use, short, help string, do func(*client.Client, context.Context, string, time.Duration) (*client.Sandbox, error)) *cobra.Command {
	var timeout time.Duration
	word, _, _ := strings.Cut(use, " ")
	return a.sub(d, sub{
		use: use, short: short, args: some(1, 1, "the ID of a sandbox"),
		example: "  caisson sandbox " + word + " ID --timeout 1h",
		flags:   func(cmd *cobra.Command) { cmd.Flags().DurationVar(&timeout, "timeout", 0, help) },
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			b, err := do(c, ctx, args[0], timeout)
			if err != nil {
				return err
			}
			a.showBox(d, b)
			return nil
		},
	})
}

func (a *app) sandboxResume(d *daemon) *cobra.Command {
	return a.timed(d, "resume ID", "Let a paused sandbox go on", "let it live for so long from now on (as long as before)", (*client.Client).Resume)
}

func (a *app) sandboxExtend(d *daemon) *cobra.Command {
	return a.timed(d, "extend ID", "Let a sandbox live for longer", "let it live for at least so long from now on (5m)", (*client.Client).Extend)
}

func (a *app) sandboxSnapshot(d *daemon) *cobra.Command {
	var name string
	return a.sub(d, sub{
		use: "snapshot ID", short: "Write a running sandbox down, and print the snapshot's ID", args: some(1, 1, "the ID of a sandbox"),
		example: `  caisson sandbox snapshot ID --name ready
  caisson sandbox create --snapshot SNAPSHOT`,
		flags: func(cmd *cobra.Command) { cmd.Flags().StringVar(&name, "name", "", "call it `NAME`") },
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			s, err := c.Snapshot(ctx, args[0], name)
			switch {
			case err != nil:
				return err
			case d.json:
				a.printJSON(s)
			default:
				fmt.Fprintln(a.out, printable(s.ID))
			}
			return nil
		},
	})
}

func (a *app) sandboxSnapshots(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "snapshots [ID]", short: "List snapshots, of one sandbox or all", args: some(0, 1, "the ID of a sandbox, or nothing"),
		example: "  caisson sandbox snapshots --json",
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			all, err := c.Snapshots(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if d.json {
				a.printJSON(all)
				return nil
			}
			return a.table("ID\tNAME\tSANDBOX\tCREATED", func(w *tabwriter.Writer) {
				for _, s := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", dash(s.ID), dash(s.Name), dash(s.Sandbox), s.Created.Local().Format(time.DateTime))
				}
			})
		},
	})
}

func (a *app) sandboxFork(d *daemon) *cobra.Command {
	var count int
	var timeout time.Duration
	return a.sub(d, sub{
		use: "fork ID", short: "Make copies of a running sandbox, and print their IDs", args: some(1, 1, "the ID of a sandbox"),
		example: "  caisson sandbox fork ID --count 4",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&count, "count", 1, "make so many")
			cmd.Flags().DurationVar(&timeout, "timeout", 0, "let each live for so long (5m)")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			all, err := c.Fork(ctx, args[0], count, timeout)
			if err != nil {
				return err
			}
			var errs []error
			for _, f := range all {
				if f.Err != nil {
					errs = append(errs, f.Err)
					continue
				}
				a.showBox(d, f.Sandbox)
			}
			return errors.Join(errs...)
		},
	})
}

func (a *app) sandboxKill(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "kill ID...", short: "End sandboxes, or remove snapshots; nothing of them is left", args: some(1, 0, "IDs of sandboxes or snapshots"),
		example: "  caisson sandbox kill ID\n  caisson sandbox kill $(caisson sandbox ls --json | jq -r '.[].id')",
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			var errs []error
			for _, id := range args {
				if strings.HasPrefix(id, "s") {
					errs = append(errs, c.DeleteSnapshot(ctx, id))
				} else {
					errs = append(errs, c.Kill(ctx, id))
				}
			}
			return errors.Join(errs...)
		},
	})
}

func (a *app) sandboxURL(d *daemon) *cobra.Command {
	return a.sub(d, sub{
		use: "url ID PORT", short: "Print where a port of a sandbox is reached", args: some(2, 2, "the ID of a sandbox and a port"),
		example: "  curl \"$(caisson sandbox url ID 8080)\"",
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, args []string) error {
			n, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || n == 0 {
				return usage(cmd, printable(args[1])+" is no port", "ports are 1 to 65535")
			}
			p, err := c.Port(ctx, args[0], uint16(n))
			switch {
			case err != nil:
				return err
			case d.json:
				a.printJSON(p)
			default:
				fmt.Fprintln(a.out, printable(p.URL))
			}
			return nil
		},
	})
}

func (a *app) sandboxStats(d *daemon) *cobra.Command {
	var since time.Duration
	return a.sub(d, sub{
		use: "stats ID", short: "Show what a sandbox uses", args: some(1, 1, "the ID of a sandbox"),
		example: `  caisson sandbox stats ID
  caisson sandbox stats ID --since 10m --json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().DurationVar(&since, "since", 0, "and what it used since so long ago")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			all, err := c.Usage(ctx, args[0], time.Now().Add(-since))
			if err != nil {
				return err
			}
			if d.json {
				a.printJSON(all)
				return nil
			}
			return a.table("AT\tCPU\tCPU%\tMEMORY\tPROCESSES\tDISK", func(w *tabwriter.Writer) {
				for _, r := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.At.Local().Format(time.TimeOnly), shown(r.CPU, func(s client.Seconds) string { return s.Duration().Round(time.Millisecond).String() }),
						shown(r.CPUPercent, func(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) }), shown(r.Memory, session.Size), shown(r.Processes, strconv.Itoa), shown(r.Disk, session.Size))
				}
			})
		},
	})
}

// shown is a figure, or a dash where it was not measured.
func shown[T any](v *T, as func(T) string) string {
	if v == nil {
		return "-"
	}
	return as(*v)
}

func (a *app) sandboxLogs(d *daemon) *cobra.Command {
	var follow bool
	return a.sub(d, sub{
		use: "logs ID", short: "Show the programs of a sandbox that have ended, and what they wrote", args: some(1, 1, "the ID of a sandbox"),
		long: `Show the programs of a sandbox that have ended, and what they wrote: as much of
the last ones as the daemon keeps in memory while the sandbox lives.`,
		example: "  caisson sandbox logs ID\n  caisson sandbox logs ID --follow",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox ends")
		},
		run: func(ctx context.Context, _ *cobra.Command, c *client.Client, args []string) error {
			var since int64
			for {
				wait := time.Duration(0)
				if follow {
					wait = 30 * time.Second
				}
				all, next, err := c.Logs(ctx, args[0], since, wait)
				if err != nil {
					if since > 0 && errors.Is(err, sandbox.ErrNotFound) {
						return nil // it has ended
					}
					return err
				}
				since = next
				for _, l := range all {
					a.showLog(d, &l)
				}
				if !follow {
					return nil
				}
			}
		},
	})
}

// showLog prints one program that has ended. What it wrote is never obeyed by the
// terminal.
func (a *app) showLog(d *daemon, l *client.Log) {
	if d.json {
		a.printJSON(l)
		return
	}
	how := l.Status
	if l.ExitCode != nil {
		how += " " + strconv.Itoa(*l.ExitCode)
	}
	fmt.Fprintf(a.out, "%s %s: %s\n", l.At.Local().Format(time.DateTime), printable(strings.Join(l.Command, " ")), printable(how))
	for _, s := range []string{l.Stdout, l.Stderr} {
		for line := range strings.Lines(s) {
			fmt.Fprintf(a.out, "  %s\n", printable(strings.TrimRight(line, "\r\n")))
		}
	}
}

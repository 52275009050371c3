// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
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
func some(minimum, maximum int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < minimum || maximum > 0 && len(args) > maximum {
			return usage(cmd, "it takes "+what, cmd.CommandPath()+" --help")
		}
		return nil
	}
}

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Make and use persistent sandboxes, of a caisson serve here or elsewhere",
		Long: `Make and use persistent sandboxes, of a caisson serve on this machine or another.

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
		a.sandboxPause(d), a.sandboxResume(d), a.sandboxExtend(d), a.sandboxNetwork(d), a.sandboxSnapshot(d), a.sandboxSnapshots(d), a.sandboxFork(d), a.sandboxChanges(d), a.sandboxKill(d), a.sandboxURL(d))
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
	limits := map[sandbox.LimitName]*string{}
	var pause, pauseFiles, none bool
	return a.sub(d, sub{
		use: "create", short: "Make a sandbox, and print its ID", args: noArgs,
		example: `  caisson sandbox create
  caisson sandbox create --name build --timeout 1h --on-timeout-pause --memory 256MiB
  caisson sandbox create --snapshot ID --json`,
		flags: func(cmd *cobra.Command) {
			f := cmd.Flags()
			f.StringVar(&w.Template, "template", "", "make it of the template `NAME` (base)")
			f.StringVar(&w.Snapshot, "snapshot", "", "go on from the snapshot `ID`")
			f.StringVar(&w.Name, "name", "", "take the sandbox called `NAME`, or call the new one so")
			f.StringArrayVar(&metadata, "metadata", nil, "note `NAME=VALUE` with it")
			f.StringArrayVarP(&env, "env", "e", nil, "set a variable of every program in it: `NAME=VALUE`, or NAME to pass yours on")
			f.StringArrayVar(&envFiles, "env-file", nil, "set the variables of a `FILE` of NAME=VALUE lines")
			timeVar(f, &timeout, "timeout", 0, leastTime, maxTime, "let it live for so long (5m)")
			timeVar(f, &idle, "idle", 0, leastTime, maxTime, "end it when it goes unused for so long")
			f.BoolVar(&pause, "on-timeout-pause", false, "pause it when its time is over, instead of killing it")
			f.BoolVar(&pauseFiles, "on-timeout-pause-files", false, "pause it then, without its memory")
			f.BoolVar(&w.AutoResume, "auto-resume", false, "wake it when it is used while it is paused")
			f.BoolVar(&none, "no-network", false, "no network, whatever the policy grants")
			f.StringArrayVar(&allow, "allow", nil, "of the network that the policy grants, take `HOST[:PORT]` only")
			f.StringArrayVar(&deny, "deny", nil, "take `HOST[:PORT]` away from it")
			limits[sandbox.LimitMemory] = f.String("memory", "", "memory of all its programs: `SIZE`, such as 512MiB")
			limits[sandbox.LimitDisk] = f.String("disk", "", "space that it can write: `SIZE`")
			limits[sandbox.LimitCPUs] = f.String("cpus", "", "share of processors: `N`, such as 0.5")
			limits[sandbox.LimitProcesses] = f.String("processes", "", "processes and threads: `N`")
			f.StringVar(&w.Isolation, "isolation", "", "`LEVEL` of isolation")
			completeWords(cmd, "isolation", policy.Offered()...) // the daemon may be elsewhere
		},
		run: func(ctx context.Context, cmd *cobra.Command, c *client.Client, _ []string) (err error) {
			if w.Metadata, err = pairs("--metadata", metadata); err != nil {
				return err
			}
			if w.Env, _, err = readEnv(env, envFiles); err != nil {
				return err
			}
			w.Timeout, w.Idle = client.In(timeout), client.In(idle)
			switch {
			case pause && pauseFiles:
				return usage(cmd, "--on-timeout-pause and --on-timeout-pause-files each say something else", "take one of them")
			case pauseFiles:
				w.OnTimeout = "pause-files"
			case pause:
				w.OnTimeout = "pause"
			}
			if none || len(allow)+len(deny) > 0 {
				w.Network = &client.Network{None: none, Allow: allow, Deny: deny}
			}
			if w.Limits, err = readLimits(limits); err != nil {
				return err
			}
			b, err := c.Create(ctx, w)
			if err != nil {
				return err
			}
			a.showAnew(d, b)
			return nil
		},
	})
}

// readLimits reads the limits of a sandbox; nil is none.
func readLimits(texts map[sandbox.LimitName]*string) (*client.Limits, error) {
	var l sandbox.Limits
	given := false
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if *texts[name] == "" {
			continue
		}
		if err := policy.ReadLimit(&l, name, *texts[name]); err != nil {
			return nil, &sandbox.Error{Op: "--" + flagOf(name), Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
		}
		given = true
	}
	if !given {
		return nil, nil
	}
	return &client.Limits{CPUs: l.CPUs, Memory: l.Memory, Processes: l.Processes, Disk: l.Disk}, nil
}

// showBox prints a sandbox: its ID, or all as JSON.
func (a *app) showBox(d *daemon, b *client.Sandbox) {
	if d.json {
		a.printJSON(b)
		return
	}
	fmt.Fprintln(a.out, printable(b.ID))
}

// showAnew is showBox of one that was just begun, which may have had no memory that fits.
func (a *app) showAnew(d *daemon, b *client.Sandbox) {
	if b.Rebooted != "" && !d.json {
		a.note("it began anew with its files: %s", b.Rebooted)
	}
	if b.Unwarmed != "" && !d.json {
		a.note("the warmup of its template was not done in it: %s", b.Unwarmed)
	}
	a.showBox(d, b)
}

// table prints lines of columns.
func (a *app) table(head string, lines func(w *tabwriter.Writer)) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	lines(w)
	return w.Flush()
}

// stateOf is the state of a sandbox in a table: one that runs may have gone cold.
func stateOf(b *client.Sandbox) string {
	if b.Cold == "" {
		return dash(b.State)
	}
	return dash(b.State) + ", " + map[string]string{"frozen": "frozen", "disk": "on disk"}[b.Cold]
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
			completeWords(cmd, "state", "running", "paused")
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
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", dash(b.ID), dash(b.Name), stateOf(&b), dash(b.Template), b.Created.Local().Format(time.DateTime), ends)
				}
			})
		},
	})
}

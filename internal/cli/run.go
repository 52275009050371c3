// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] FILE [ARG...] | run [flags] -- COMMAND [ARG...]",
		Short: "Run a program, a file of source, or a piece of code in a fresh sandbox",
		Long: `Run one program in a sandbox that is made for it and gone afterwards.

After -- stands a command, which is looked up inside. Without -- the first
argument is a file of yours: source, whose language its #! line, its extension
or --lang tells, or a compiled program. It is shown read-only in the working
directory, and nothing beside it. "-" reads source from standard input, --code
takes it from the command line; both need --lang or a #! line.

The sandbox has the toolchain of this host, read-only, a private /home/user (the
working directory), /tmp and /dev/shm; no network but what --allow names, and
nothing else of this host but what you name.

In a directory that is mounted rw, what would run something on this host later is
read-only: .git as a whole, what its config names, .vscode, .envrc and more. Those
that do not exist show as empty ones, so that code cannot make them: in a directory
that is no git repository an empty .git, and HEAD (or refs, or objects), without
which git takes it for no bare repository whose config it would run. They are gone
afterwards. Directories that hold such files cannot be moved.

With --git rw code commits. Configuration, hooks and what they name stay read-only,
but code can spoil the repository, and git on this host then looks at other files.

With --image it has a container image in the toolchain's place: from a registry
(pulled once, then used as it was; caisson image pull gets it anew), ./FILE from
docker save, ./DIR or oci:DIR. A command then follows docker run: it takes the
place of the image's command, the entrypoint stays. Environment, user and working
directory are the image's; where its user is root, it is uid 1000 without --root.

With --template it has what caisson template build made: an image, whose /home/user
programs find in their private one.

A limit that you ask for holds, or nothing runs. Where the host has no control
groups for you, not all of the defaults do: that is said once, unless CAISSON_ACCEPT
names them (CAISSON_ACCEPT=cpus=off,memory=emulated).

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on; the sandbox ends 2 s later, or
at once at a second one. When it does not end, caisson does: 15 s after the second
signal, or at a third. SIGUSR1 and SIGUSR2 are passed on, and nothing more.
SIGHUP and SIGINT that are ignored when caisson begins (nohup) stay ignored.
SIGTSTP stops caisson alone: the program runs on, and its time is looked at when
caisson goes on. With -t keys are the program's, Ctrl-C and Ctrl-Z too, and
SIGWINCH gives it the terminal's size; without, SIGWINCH does nothing. Any other
signal does to caisson what it does to any program; the sandbox ends with it.

Exit codes: the program's own; 128+n when signal n ended it; 127 and 126 when
the command was not found or cannot be executed; 124 the wall-clock limit ended
it; 125 caisson could not run it, or would not because something cannot be
enforced here, or the command line is wrong, or the program ended with 0, and
not all of its files could be collected or it left something in a read-write mount
that this host may run, which is a finding; 126 the policy refused it; 137 another limit
ended it.`,
		Example: `  caisson run -- python3 -c 'print(2**100)'
  caisson run --lang python --code 'print(6*7)'
  echo 'print(6*7)' | caisson run --lang python -
  caisson run --mount ./data.csv analyse.py data.csv
  caisson run --timeout 5s --memory 128MiB --json --mount ./job -- ./job
  caisson run --image python:3.14-slim -- python3 -c 'print(2**100)'
  caisson run --workspace . --collect 'out/*.png:./pictures' -- python3 plot.py
  caisson run --allow preset:pip -- pip download requests
  caisson run --allow api.example.com:443 client.py
  caisson run --allow api.example.com --secret KEY=env:API_KEY@api.example.com client.py
  caisson run -it -- bash`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.codeGiven = cmd.Flags().Changed("code")
			f.entrypointGiven = cmd.Flags().Changed("entrypoint")
			return a.doRun(cmd, f, args)
		},
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		Annotations: map[string]string{emptyIsOne: ""},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	f.add(fs)
	a.inState(cmd)
	emptyMeans(fs, "code", "entrypoint")
	_ = cmd.RegisterFlagCompletionFunc("image", a.completeImages)
	_ = cmd.RegisterFlagCompletionFunc("template", a.completeTemplates)
	a.completeLevels(cmd)
	completeWords(cmd, "lang", session.Languages()...)
	completeWords(cmd, "git", "ro", "rw")
	completeWords(cmd, "preset", policy.Presets()...)
	return cmd
}

// doRun is the whole command.
func (a *app) doRun(cmd *cobra.Command, f *runFlags, args []string) error {
	// A whole run allocates less than the 16 MB at which collection begins
	// then; at the usual 4 it would begin in the middle of making the sandbox.
	debug.SetGCPercent(400)
	call, stdin, err := a.call(cmd, f, args)
	if err != nil {
		return err
	}
	if f.json && f.tty {
		return usage(cmd, "--json and -t do not go together", "a terminal mixes output and error output: drop one of them")
	}
	p, name, err := policyOf(cmd, f, call)
	if err != nil {
		return err
	}
	if p.Terminal() && !cmd.Flags().Changed("tty") && !f.json && isTerminal(stdin) && isTerminal(a.out.file) {
		f.tty = true
	}
	opened, err := a.openUnder(contextOf(cmd), a.state, p, name)
	if err != nil {
		return err
	}
	defer opened.close()
	if err := beginWith(opened, call, f); err != nil {
		return err
	}
	if f.explain {
		return a.explainRun(contextOf(cmd), f, opened, call)
	}
	return a.carryOut(contextOf(cmd), f, opened, call, stdin)
}

// policyOf is the policy of --policy or --preset, below the system's, and its name. A
// preset's paths start from the workspace that the call names, or else from here.
func policyOf(cmd *cobra.Command, f *runFlags, c *session.Call) (*policy.Policy, string, error) {
	if f.preset == "" {
		p, err := config.Policy(f.policy)
		return p, f.policy, err
	}
	if f.policy != "" {
		return nil, "", usage(cmd, "--preset and --policy do not go together", "write both into one file, which starts with: caisson policy init --preset "+f.preset)
	}
	dir, err := absolute(".")
	if err != nil {
		return nil, "", err
	}
	if c.Workspace != nil {
		dir = c.Workspace.Source
	}
	file, err := config.Preset(f.preset, dir)
	if err != nil {
		return nil, "", err
	}
	p, err := config.Over(file)
	return p, file.Name, err
}

// beginWith works in the workspace of the change set to begin with, where none is named.
func beginWith(o *opened, c *session.Call, f *runFlags) error {
	if f.changes == "" || f.workspace != "" {
		return nil
	}
	store, err := o.ChangeSets()
	if err != nil {
		return err
	}
	set, err := store.Get("", f.changes)
	if err != nil {
		return err
	}
	c.Workspace = &policy.MountWish{Source: set.Name, Access: sandbox.CopyOnWrite}
	return nil
}

// call turns flags and arguments into a request. The file is what the program
// reads as its input; nil is none.
func (a *app) call(cmd *cobra.Command, f *runFlags, args []string) (*session.Call, *os.File, error) {
	c := &session.Call{Frontend: "cli"}
	c.Actor, c.Operator, c.Lookup = actor(), true, os.LookupEnv
	c.Isolation, c.Root, c.BestEffort, c.Override, c.Cwd = f.isolation, f.root, f.bestEffort, f.override, f.workdir
	c.Network = f.allow
	c.Writable, c.Deny, c.AllowDangerousMounts = f.writable, f.deny, f.dangerous
	c.InsecureRegistry = f.insecure
	if f.entrypointGiven {
		c.Entrypoint = &f.entrypoint
	}
	stdin := a.in
	if !f.interactive {
		stdin = nil
	}
	if f.workdir != "" && !path.IsAbs(f.workdir) {
		return nil, nil, &sandbox.Error{Op: "--workdir " + sandbox.Quoted(f.workdir), Kind: sandbox.ErrInvalid, Problem: "it is not an absolute path",
			Hint: "name a directory inside, such as /home/user; --workspace DIR works in one of yours"}
	}
	if err := what(cmd, c, f, args); err != nil {
		return nil, nil, err
	}
	if c.Source != nil && c.Source.Name == stdinName {
		code, err := session.ReadSource("standard input", a.in)
		if err != nil {
			return nil, nil, err
		}
		c.Source.Code, stdin = code, nil
		if info, err := a.in.Stat(); err == nil && info.Mode().IsRegular() {
			c.Read = append(c.Read, sandbox.HostFile{File: a.in})
		}
	}
	for _, step := range []func() error{
		func() error { return f.limits.read(&c.Limits) },
		func() error { return readFiles(c, f) },
		func() error {
			env, read, err := readEnv(f.env, f.envFiles)
			c.Env, c.Read = env, append(c.Read, read...)
			return err
		},
		func() error { return readWatch(c, f.watch) },
		func() error { return readSecrets(c, &f.networkFlags) },
	} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	return c, stdin, nil
}

// stdinName is the name of source that comes on standard input.
const stdinName = "-"

// what finds out what is to run: a command after --, code, or a file.
func what(cmd *cobra.Command, c *session.Call, f *runFlags, args []string) error {
	command := cmd.ArgsLenAtDash() == 0
	switch {
	case f.codeGiven && command:
		return usage(cmd, "--code and a command do not go together", "drop the -- to pass arguments to the code")
	case f.codeGiven:
		c.Source = &session.Source{Name: "--code", Language: f.lang, Code: []byte(f.code)}
		c.Argv = args
	case len(args) == 0 && f.image+f.template != "":
		// What the image says.
	case len(args) == 0:
		return usage(cmd, "there is nothing to run", "name a file, or a command after --: caisson run -- python3 -V")
	case command && f.lang != "":
		return usage(cmd, "--lang goes with source, not with a command", "drop --lang, or the --")
	case args[0] == "":
		return usage(cmd, "the name of what is to run is empty", "say what it is to be; a variable that it comes from may not be set")
	case command:
		c.Argv = args
	case args[0] == stdinName:
		c.Source = &session.Source{Name: stdinName, Language: f.lang}
		c.Argv = args[1:]
	default:
		path, err := absolute(args[0])
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return &sandbox.Error{Op: "run " + sandbox.Quoted(args[0]), Kind: sandbox.ErrNotFound, Problem: "there is no such file",
				Hint: "for a command write: caisson run -- " + typed(args)}
		}
		c.File, c.FileLanguage, c.Argv = path, f.lang, args[1:]
	}
	return nil
}

func usage(cmd *cobra.Command, problem, hint string) error {
	return &sandbox.Error{Op: cmd.CommandPath(), Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
}

func readWatch(c *session.Call, rules []string) error {
	for _, s := range rules {
		r, err := policy.ParseWatch(s)
		if err != nil {
			return err
		}
		c.Watch = append(c.Watch, r)
	}
	return nil
}

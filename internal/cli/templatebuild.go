// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/build"
	"github.com/caisson-run/caisson/template"
)

// buildFlags are the flags of template build.
type buildFlags struct {
	file, from, policy  string
	isolation           string
	args                []string
	network             networkFlags
	limits              limitFlags
	noCache, bestEffort bool
	insecure, asJSON    bool
}

func (a *app) templateBuild() *cobra.Command {
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "build NAME[:TAG] [DIR]",
		Short: "Build a template from a template.yaml or a Dockerfile",
		Long: `Build a template from a template.yaml or a Dockerfile. COPY takes files from DIR, the
file's own directory where none is named, but for what .dockerignore names there.

data-analysis and code-interpreter-v1 need no file: caisson knows them.

Steps run on gVisor, or in virtual machines (--isolation microvm), as the sandbox's own
root, with the hosts of the file's network and of --allow. None runs on this host. The
network of the build is none of the template's.
A secret of --secret, or of the policy, is put into requests on their way out: steps have
a placeholder of it, and so has what they leave in the template.`,
		Example: `  caisson template build data -f template.yaml
  caisson template build app:v2 -f Dockerfile --allow preset:apt .
  caisson template build py --from python:3.14-slim
  caisson template build app --allow npm.example.com --secret NPM_TOKEN=env:NPM_TOKEN@npm.example.com
  caisson template build data-analysis
  caisson template build data-analysis --from debian:12`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage(cmd, "it takes a name, and maybe a directory", "for example caisson template build data -f template.yaml")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.doBuild(cmd, f, args) },

		SilenceErrors: true, SilenceUsage: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.file, "file", "f", "", "build from `FILE`: a Dockerfile, or YAML where its name ends in .yaml or .yml (DIR/template.yaml, else DIR/Dockerfile)")
	fs.StringVar(&f.from, "from", "", "start from another `IMAGE`, template:NAME or host; without a file that is all")
	fs.StringArrayVar(&f.args, "build-arg", nil, "value of an ARG of the Dockerfile: `NAME=VALUE`")
	f.network.add(fs)
	fs.StringVar(&f.isolation, "isolation", "", "`LEVEL` of isolation of the steps: gvisor, microvm or vm (gvisor)")
	fs.BoolVar(&f.noCache, "no-cache", false, "run every step, also where its result is known")
	fs.BoolVar(&f.insecure, "insecure-registry", false, "pull images from their registry without TLS")
	policyVar(fs, &f.policy, "policy `FILE` that bounds the steps")
	f.limits.add(fs, build.DefaultLimits())
	fs.BoolVar(&f.bestEffort, "best-effort", false, "run steps also where a limit does not hold on this host")
	fs.BoolVar(&f.asJSON, "json", false, "print the template as one JSON object at the end")
	a.completeLevels(cmd)
	return cmd
}

func (a *app) doBuild(cmd *cobra.Command, f *buildFlags, args []string) error {
	name, err := templateName(args[0])
	if err != nil {
		return err
	}
	r := build.Request{Name: name, NoCache: f.noCache, Progress: a.buildProgress()}
	dir := ""
	if len(args) > 1 {
		dir = args[1]
	}
	if err := f.definition(&r, dir); err != nil {
		return err
	}
	if r.Dir != nil {
		defer r.Dir.Close()
	}
	r.Call = session.Call{Frontend: "cli"}
	r.Call.Actor, r.Call.Operator, r.Call.Network, r.Call.Isolation = actor(), true, f.network.allow, f.isolation
	r.Call.BestEffort, r.Call.InsecureRegistry, r.Call.OnNotice = f.bestEffort, f.insecure, func(s string) { a.note("%s", s) }
	r.Call.OnRefused = a.refusals()
	if err := f.limits.read(&r.Call.Limits); err != nil {
		return err
	}
	if err := readSecrets(&r.Call, &f.network); err != nil {
		return err
	}
	p, err := config.Policy(f.policy)
	if err == nil {
		p, err = p.WithDefaults(build.DefaultLimits())
	}
	if err != nil {
		return err
	}
	o, err := a.openUnder(contextOf(cmd), a.state, p, f.policy)
	if err != nil {
		return err
	}
	defer o.close()
	images, err := image.OpenStore(o.Images())
	if err != nil {
		return err
	}
	goes, done := goesOn(filepath.Dir(o.Images()))
	defer done()
	images.KeepWhile(goes)
	ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM) // so that nothing half done stays
	defer stop()
	built, err := (&build.Builder{Session: o.Session, Images: images}).Build(ctx, r)
	if err != nil {
		return err
	}
	if f.asJSON {
		a.printJSON(built)
		return nil
	}
	fmt.Fprintln(a.out, built.Digest)
	return nil
}

// maxDefinition is how long a file may be that a template is built from, in bytes; what
// reads it has bounds of its own.
const maxDefinition = 16 << 20

// definition says what the template is built from, and opens the build's directory.
func (f *buildFlags) definition(r *build.Request, dir string) error {
	if known := template.Builtin(r.Name.Name); (known != nil || f.from != "") && f.file == "" && dir == "" {
		text := string(known)
		if f.from != "" {
			text = fromLine(f.from) + withoutFrom(text)
		}
		r.Read = func(o template.Options) (*template.Definition, error) {
			return template.ParseYAML(r.Name.Name, []byte(text), o)
		}
		return nil
	}
	if f.from != "" {
		return &sandbox.Error{Op: "--from", Kind: sandbox.ErrInvalid, Problem: "the file says what the template is built from", Hint: "leave -f and the directory out, or change the file"}
	}
	file, err := f.find(dir)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Dir(file)
	}
	src, err := files.Read(file, maxDefinition)
	if err != nil {
		return &sandbox.Error{Op: "template build -f " + sandbox.Quoted(file), Kind: sandbox.ErrInvalid, Problem: "it cannot be read", Hint: "name a template.yaml or a Dockerfile", Cause: err}
	}
	values, err := f.values()
	if err != nil {
		return err
	}
	read := template.ParseDockerfile
	if ext := filepath.Ext(file); ext == ".yaml" || ext == ".yml" {
		read = template.ParseYAML
	}
	r.Read = func(o template.Options) (*template.Definition, error) {
		o.Args = values
		return read(file, src, o)
	}
	if r.Dir, err = os.OpenRoot(dir); err != nil {
		return &sandbox.Error{Op: "template build " + sandbox.Quoted(dir), Kind: sandbox.ErrInvalid, Problem: "the directory cannot be opened", Hint: "name the one that COPY takes files from", Cause: err}
	}
	return f.ignores(r, dir)
}

// find is the file that is named, else the usual one of the directory.
func (f *buildFlags) find(dir string) (string, error) {
	if f.file != "" {
		return f.file, nil
	}
	for _, name := range []string{"template.yaml", "Dockerfile"} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", &sandbox.Error{Op: "template build", Kind: sandbox.ErrInvalid, Problem: "there is no template.yaml and no Dockerfile in " + sandbox.Quoted(filepath.Join(".", dir)), Hint: "name the file with -f, or an image with --from"}
}

// ignores reads .dockerignore, where there is one.
func (f *buildFlags) ignores(r *build.Request, dir string) error {
	const name = ".dockerignore"
	if _, err := r.Dir.Lstat(name); err != nil {
		return nil
	}
	text, err := readIgnore(r.Dir, name)
	if err != nil {
		return &sandbox.Error{Op: "template build", Kind: sandbox.ErrInvalid, Problem: name + " cannot be read", Hint: "check its permissions, and that it is a file", Cause: err}
	}
	r.Ignore, err = template.ParseIgnore(filepath.Join(dir, name), text)
	return err
}

// readIgnore reads a file of the build's directory, which may hold anything: a pipe in its
// place is not waited for. One that is too long is cut where its reader refuses it.
func readIgnore(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, os.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(f, maxDefinition))
}

// values are those of --build-arg.
func (f *buildFlags) values() (map[string]string, error) {
	out := map[string]string{}
	for _, s := range f.args {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, &sandbox.Error{Op: "--build-arg " + sandbox.Quoted(s), Kind: sandbox.ErrInvalid, Problem: "it is not NAME=VALUE", Hint: "write --build-arg NAME=VALUE"}
		}
		out[name] = value
	}
	return out, nil
}

// fromLine is the line of a template.yaml that says where it starts: from the host, a
// template or an image.
func fromLine(from string) string {
	name, isTemplate := strings.CutPrefix(from, "template:")
	switch {
	case from == "host":
		return "from: host\n"
	case isTemplate:
		return "from: {template: " + quoteYAML(name) + "}\n"
	}
	return "from: {image: " + quoteYAML(from) + "}\n"
}

// withoutFrom is a template.yaml of caisson's without that line.
func withoutFrom(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "from:") }), "")
}

// quoteYAML writes s so that YAML reads it as a text.
func quoteYAML(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// buildProgress tells of steps on standard error, as docker build does.
func (a *app) buildProgress() func(build.Event) {
	last, out := -1, newFilter(a.err)
	return func(e build.Event) {
		head := fmt.Sprintf("[%d/%d] ", e.Step, e.Steps)
		switch {
		case e.Output != nil:
			_, _ = out.Write(e.Output) // it is for a person, and nothing depends on it
		case e.State == build.Running && last != e.Step:
			last = e.Step
			fmt.Fprintln(a.err, head+printable(e.Text))
		case e.State == build.Cached:
			fmt.Fprintln(a.err, head+printable(e.Text)+" (known)")
		case e.State == build.Done:
			fmt.Fprintf(a.err, "%sdone in %s\n", head, e.Took.Round(100*time.Millisecond))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// runFlags are the flags of run.
type runFlags struct {
	programFlags
	fileFlags
	collectFlags
	rootFlags
	networkFlags
	environmentFlags
	boundFlags
	outputFlags
	set *pflag.FlagSet // the command's, by which a hint can name them
}

// add adds all of them, in the order in which they are listed.
func (f *runFlags) add(fs *pflag.FlagSet) {
	f.set = fs
	f.programFlags.add(fs)
	f.fileFlags.add(fs)
	f.collectFlags.add(fs)
	f.rootFlags.add(fs)
	f.networkFlags.add(fs)
	f.environmentFlags.add(fs)
	f.boundFlags.add(fs)
	f.outputFlags.add(fs)
}

// programFlags say what runs, and what it is given to read.
type programFlags struct {
	lang, code       string
	codeGiven        bool
	interactive, tty bool
}

func (f *programFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.lang, "lang", "", "`LANGUAGE` of the source: "+strings.Join(session.Languages()[:6], ", ")+" and more")
	fs.StringVar(&f.code, "code", "", "run `SOURCE`, instead of a file of it")
	fs.BoolVarP(&f.interactive, "interactive", "i", true, "pass standard input on")
	fs.BoolVarP(&f.tty, "tty", "t", false, "give the program a terminal")
}

// fileFlags say which files of the host a sandbox has.
type fileFlags struct {
	mounts, toolchains           []string
	workspace, git               string
	changes                      string // a change set's ID
	discard, keepIgnored, review bool
	writable, deny               []string
	dangerous                    bool
}

func (f *fileFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.mounts, "mount", nil, "show a file or directory: `SRC`[:TARGET][:ro|rw|cow|rw,shared] (ro; without a target under its name in the working directory), with \\: for a colon in a name")
	fs.StringVar(&f.workspace, "workspace", "", "work in a directory of yours: `DIR`[:cow|review|ro|rw|rw,shared] (cow: what is changed is kept as a change set; review asks at the end), with \\: for a colon in it")
	fs.BoolVar(&f.discard, "discard", false, "keep nothing of what is changed in the workspace")
	fs.StringVar(&f.changes, "changes", "", "begin with the change set `ID` in place; its workspace is the workspace where none is named")
	fs.BoolVar(&f.keepIgnored, "keep-ignored", false, "keep also what .gitignore files ignore")
	fs.StringVar(&f.git, "git", "", "what code may do with repositories in what is mounted rw: `MODE` ro, or rw to let it commit (ro)")
	fs.BoolVar(&f.dangerous, "allow-dangerous-mount", false, "mount home folders, keys and credentials too; recorded")
	fs.StringArrayVar(&f.toolchains, "toolchain", nil, "show a toolchain from elsewhere, with its bin in PATH: `DIR`")
	fs.StringArrayVar(&f.writable, "writable", nil, "make a path inside writable: `PATH`")
	fs.StringArrayVar(&f.deny, "deny", nil, "hide files of mounts: `PATTERN`, such as '**/.env'")
}

// collectFlags say which files come out.
type collectFlags struct {
	collect      []string
	overwrite    bool
	collectFiles int
	collectSize  string
}

func (f *collectFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.collect, "collect", nil, "take files out afterwards: `PATTERN`[:DIR]; without the directories before its first wildcard, hidden ones where it has their dot, those that run something on this host where it has their name")
	fs.BoolVar(&f.overwrite, "collect-overwrite", false, "let --collect replace files that are there")
	fs.IntVar(&f.collectFiles, "collect-files", 0, "files and links that a --collect takes out: `N` (1000)")
	fs.StringVar(&f.collectSize, "collect-size", "", "`SIZE` of what a --collect takes out (256MiB)")
}

// rootFlags say what is the root of a sandbox.
type rootFlags struct {
	rootfs, image, entrypoint string
	template                  string
	entrypointGiven, insecure bool
}

func (f *rootFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.rootfs, "rootfs", "", "use another tree as the root: `DIR`")
	fs.StringVar(&f.image, "image", "", "run on a container `IMAGE`: python:3.14, ./image.tar, oci:DIR")
	fs.StringVar(&f.template, "template", "", "run on a template that was built here: `NAME`[:TAG]")
	fs.StringVar(&f.entrypoint, "entrypoint", "", "run another `PROGRAM` in place of the image's entrypoint; '' for none")
	fs.BoolVar(&f.insecure, "insecure-registry", false, "pull the image of --image from its registry without TLS")
}

// networkFlags say what a sandbox may reach, and as whom.
type networkFlags struct {
	allow, secrets []string
	upstreamCA     string
}

func (f *networkFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.allow, "allow", nil, "let connections out: `HOST`[:PORT], '*.HOST', CIDR:PORT, internet, or preset:pip (npm, git, apt, go); without a port 443 and 80")
	fs.StringArrayVar(&f.secrets, "secret", nil, "let the router put a secret into requests: `NAME`=env:VARIABLE@HOST, NAME=file:PATH@HOST or NAME=login:claude; code has a placeholder in $NAME")
	fs.StringVar(&f.upstreamCA, "upstream-ca", "", "trust the authorities in a PEM file, too, for hosts whose TLS the router ends: `FILE`")
}

// environmentFlags say what a program finds around it.
type environmentFlags struct {
	workdir       string
	env, envFiles []string
}

func (f *environmentFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.workdir, "workdir", "", "work in the directory `PATH` inside, absolute")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set a variable: `NAME`=VALUE, or NAME to pass yours on")
	fs.StringArrayVar(&f.envFiles, "env-file", nil, "set the variables of a `FILE` of NAME=VALUE lines")
}

// boundFlags say what bounds a run.
type boundFlags struct {
	isolation, policy, preset  string
	limits                     limitFlags
	watch                      []string
	override, bestEffort, root bool
}

func (f *boundFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.isolation, "isolation", "", "`LEVEL` of isolation; caisson doctor lists them (gvisor)")
	f.limits.add(fs, sandbox.DefaultLimits())
	fs.Lookup("timeout").Usage += "; none with -t"
	fs.StringArrayVar(&f.watch, "watch", nil, "watch usage by a `RULE`: 'cpu_percent > 80 for 10s do kill' (or report)")
	policyVar(fs, &f.policy, "policy `FILE` that bounds this run")
	fs.Var(&once{to: &f.preset}, "preset", "bound this run by a policy that caisson brings along: `NAME` "+strings.Join(policy.Presets(), ", "))
	fs.BoolVar(&f.override, "override", false, "let flags loosen the limits of the policy file; recorded")
	fs.BoolVar(&f.bestEffort, "best-effort", false, "run even if a limit cannot be enforced here; the result says which")
	fs.BoolVar(&f.root, "root", false, "run as the sandbox's own root, where that is not the host's")
}

// outputFlags say what is shown.
type outputFlags struct {
	explain, json, stats, raw bool
}

func (f *outputFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.explain, "explain", false, "say what the run would have and be held to, and run nothing")
	fs.BoolVar(&f.json, "json", false, "print one JSON object with the result and the output")
	fs.BoolVar(&f.stats, "stats", false, "show live usage on standard error")
	fs.BoolVar(&f.raw, "raw", false, "pass the program's output to a terminal unfiltered")
}

// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"
	"sync"
)

// rule judges the arguments of a program that may start others, or carry out
// code of its own.
type rule func(s *scope, c *Command, in stdin)

// ruleOf is the rule of a program, by the last component of its name; nil for
// one that does what its name says.
func ruleOf(base string) rule {
	if r := rules()[base]; r != nil {
		return r
	}
	if strings.HasPrefix(base, "qemu-") {
		return opaque("starts any program")
	}
	if strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld-musl") || strings.HasPrefix(base, "ld.so") {
		return opaque("starts any program")
	}
	// x86_64-linux-gnu-gcc-14, perl5.36-x86_64-linux-gnu.
	if first, machine, rest := aroundMachine(base); machine {
		if r := ruleOf(rest); r != nil {
			return r
		}
		return ruleOf(first)
	}
	// python3.14, perl5.36, lua5.4, gcc-14.
	if bare := strings.TrimRight(base, "0123456789.-"); bare != base && bare != "" {
		return rules()[bare]
	}
	return nil
}

// aroundMachine cuts a name at the machine that is in it, CPU-linux-ABI.
func aroundMachine(base string) (before string, is bool, behind string) {
	before, behind, is = strings.Cut(base, "-linux-")
	if !is {
		return "", false, ""
	}
	if i := strings.LastIndexByte(before, '-'); i >= 0 { // the CPU
		before = before[:i]
	} else {
		before = ""
	}
	_, behind, _ = strings.Cut(behind, "-")
	return before, true, behind
}

// table is made once, when it is first asked for.
var table struct {
	once  sync.Once
	rules map[string]rule
}

func rules() map[string]rule {
	table.once.Do(func() { table.rules = makeRules() })
	return table.rules
}

func makeRules() map[string]rule {
	m := map[string]rule{
		"xargs": xargs, "find": find, "watch": watch, "cmake": cmake, "git": git, "tar": tar, "sed": sed, "awk": awk, "make": makeRule, "go": golang,
		"bash": shells(Bash), "sh": shells(POSIX), "dash": shells(POSIX), "ash": shells(POSIX),
		"gawk": awk, "original-awk": awk, "goawk": awk, "mawk": awk, "nawk": awk, "gsed": sed, "gtar": tar, "bsdtar": tar, "gmake": makeRule, "gfind": find, "gxargs": xargs,
		"less": pager, "more": pager, "most": pager, "pager": pager, "sensible-pager": pager, "zless": pager, "zmore": pager, "xzless": pager, "xzmore": pager,
		"bzless": pager, "bzmore": pager, "lzless": pager, "lzmore": pager, "zstdless": pager,
	}
	for name, w := range wrappers() {
		m[name] = w.judge
	}
	for name, o := range flagged() {
		m[name] = o.judge
	}
	for _, n := range strings.Fields(interpreters) {
		m[n] = interpreter
	}
	for _, n := range strings.Fields(starters) {
		m[n] = opaque("starts other programs")
	}
	for _, n := range strings.Fields(subcommands) {
		m[n] = subcommand
	}
	return m
}

// interpreters run a script, code of the command line, or what they read.
const interpreters = "irb pry python pypy node nodejs ruby perl php lua luajit Rscript R julia tclsh wish expect groovy elixir iex erl escript ghci runghc " +
	"runhaskell racket guile sbcl clojure clj scala kotlin kotlinc swift ts-node tsx deno bun java jshell osascript gjs qjs mjs raku " +
	"ipython jython octave maxima gnuplot bc dc m4 sqlite psql mysql mariadb redis-cli mongosh ocaml crystal nim pwsh powershell"

// starters start what they are told in ways of their own.
const starters = "zsh hush yash posh osh ksh mksh pdksh fish csh tcsh rbash rc es elvish nu xonsh su runuser setpriv capsh prlimit unshare nsenter setarch linux32 linux64 " +
	"ssh sshpass mosh telnet nc ncat netcat socat parallel entr script scriptreplay strace ltrace gdb lldb perf valgrind flock run-parts " +
	"start-stop-daemon systemd-run at batch crontab screen tmux byobu vim vi nvim view ex ed red emacs nano pico joe micro code dbus-run-session xvfb-run " +
	"proot bwrap bubblewrap firejail faketime unbuffer ionotify inotifywait lxc-attach machinectl docker-compose xdg-open open launchctl " +
	"direnv mise asdf nix nix-shell guix rlwrap cpulimit numactl catchsegv xterm x-terminal-emulator ctags gpg-agent ssh-agent " +
	"chpst softlimit runcon choom coproc dtach abduco reptyr catchpoint hyperfine perf-stat ts-run sg newgrp pkexec rename prename file-rename " +
	"gosu su-exec tini dumb-init catatonit setuidgid envdir s6-setuidgid cross-env env-cmd dotenv doppler aws-vault chamber wait-for-it watchexec nodemon " +
	"chokidar reflex fzf sk peco tig lazygit ranger nnn lf vifm mc tshark buildah rpm rpmbuild pandoc latexmk xelatex lualatex pdflatex " +
	"convert magick mogrify gs gpg ssh-keygen openssl openvt cttyhack tcpsvd udpsvd runsv runsvdir svlogd zcip udhcpc ifplugd inetd ftp lftp mail mailx mutt sshfs logrotate aria2c service initctl rc-service update-alternatives chronic ifne vipe vidir unshadow pexec logsave " +
	"systemd-cat systemd-inhibit systemd-nspawn systemd-socket-activate systemd-mount uclampset i386 x86_64 uname26 fakeroot-sysv fakeroot-tcp fakechroot schroot " +
	"memusage sotruss heaptrack gprofng gp-collect-app gdbserver gdbtui rr bpftrace luit fstab-decode iptables-apply debconf debconf-apt-progress agetty " +
	"dpkg-architecture dpkg-buildpackage debuild pg_virtualenv msgexec msgfilter libtool prove pydoc pdb lli opt llc bugpoint not jdb jrunscript ctr runc crun " +
	"vim.basic vim.tiny vim.nox vimdiff rvim rview gvim evim vimtutor emacsclient mcedit kak hx helix jed zile editor sensible-editor sensible-browser www-browser " +
	"lynx w3m links elinks slogin autossh rsh rlogin ssh-copy-id ssh-argv0 nc.traditional nc.openbsd proxychains proxychains4 torsocks torify tsocks trickle " +
	"cgexec aa-exec sem mispipe pee zrun lckdo cscope ctags-universal etags pcre2grep pcregrep ugrep ug exiftool yt-dlp youtube-dl mpv sox play " +
	"tex latex pdftex luatex xetex dvips identify composite montage conjure gm gpg-connect-agent gpgtar gpg-zip gpgsm tcc rdmd dub zig dlv ghc duckdb mysqlsh usql " +
	"nyc c8 concurrently run-s run-p npm-run-all pm2 forever onchange zx lerna turbo nx vite-node esno babel-node start-server-and-test"

// subcommands are programs with subcommands that start others: the subcommand
// is to be named.
const subcommands = "docker podman nerdctl kubectl helm gh systemctl npm yarn pnpm poetry pipenv uv conda mamba tox nox hatch pdm rye cargo rustup " +
	"pip pip3 cpan cpanm luarocks opam stack cabal mix rebar3 lein sbt bazel pyenv rbenv asdf coverage pre-commit corepack " +
	"npx bunx pnpx uvx pipx bundle composer gem mvn gradle dotnet apt apt-get dnf yum apk brew snap flatpak ansible ansible-playbook terraform vagrant just task rake invoke fab"

// opaque: whatever the arguments are, they have to be named as a whole.
func opaque(what string) rule {
	return func(_ *scope, c *Command, _ stdin) {
		if !only(c, "--version", "-V", "-v", "--help") {
			c.need(0, 0, "%s", what)
		}
	}
}

// only: the one argument is one of words.
func only(c *Command, words ...string) bool {
	if len(c.Words) != 2 || !c.Words[1].Static {
		return false
	}
	for _, w := range words {
		if c.Words[1].Text == w {
			return true
		}
	}
	return false
}

// subcommand needs every word up to the subcommand.
func subcommand(_ *scope, c *Command, _ stdin) {
	if only(c, "--version", "-V", "-v", "--help", "-h") {
		return
	}
	named := false
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		switch name, _, _ := strings.Cut(w.Text, "="); {
		case w.Static && w.plain() && !named:
			c.need(1, i+1, "is decided by its subcommand")
			named = true
		case named && w.Static && w.Text == "--":
			return
		case named && (!w.known() || w.Static && changesWhat(Base(c.Name()), name)):
			c.need(i, i+1, "%s changes what it starts", w.Text)
		}
	}
	if !named {
		c.need(0, 0, "is decided by its subcommand")
	}
}

// changesWhat says that an option behind the subcommand changes what is started. Some
// of these programs take the beginning of a name for the name.
func changesWhat(program, option string) bool {
	letters, own := ownOptions(strings.TrimRight(program, "0123456789."))
	if !strings.HasPrefix(option, "--") {
		return option == "-H" || len(option) > 1 && option[0] == '-' && strings.ContainsAny(option, letters)
	}
	for o := range strings.FieldsSeq(subcommandOptions + own) {
		if o == option || len(option) > 3 && strings.HasPrefix(o, option) {
			return true
		}
	}
	return false
}

// subcommandOptions change what these programs start, wherever they stand.
const subcommandOptions = "--script-shell --shell --node-options --userconfig --globalconfig --prefix --call --config --kubeconfig --host"

// ownOptions are those of some programs.
func ownOptions(program string) (letters, names string) {
	switch program {
	case "apt", "apt-get":
		return "oc", " --option --config-file"
	case "dnf", "yum":
		return "c", " --setopt"
	case "yarn":
		return "", " --cwd"
	case "pnpm":
		return "C", " --dir"
	case "poetry":
		return "CP", " --directory --project"
	case "uv":
		return "p", " --directory --project --python --config-file"
	case "pre-commit", "tox":
		return "c", ""
	case "nox":
		return "f", " --noxfile"
	case "coverage":
		return "", " --rcfile"
	case "task":
		return "td", " --taskfile --dir"
	case "rake":
		return "feErRIp", " --rakefile --execute --require --libdir --rakelibdir"
	case "mvn":
		return "fstgD", " --file --settings --global-settings --toolchains --define"
	case "npm":
		return "C", " --git --editor --viewer --browser --node-gyp --init-module"
	case "pip":
		return "", " --python"
	case "helm":
		return "", " --post-renderer"
	case "gradle":
		return "IbpcD", " --init-script --build-file --project-dir --settings-file --include-build --gradle-user-home --system-prop"
	case "podman":
		return "", " --runtime --conmon --hooks-dir"
	}
	return "", ""
}

// interpreter needs every word up to the script, but for options that only
// tell or only tune.
func interpreter(s *scope, c *Command, in stdin) {
	if only(c, "--version", "-V", "-v", "-VV", "--help", "-h", "-version") {
		return
	}
	tune := options{}
	if strings.HasPrefix(Base(c.Name()), "python") {
		tune = options{flags: "uBOEIsSbd"}
	}
	named := false
	for i := 1; i < len(c.Words); i++ {
		w := c.Words[i]
		if w.Static && len(w.Text) > 1 && w.Text[0] == '-' {
			if _, ok := tune.cluster(w.Text[1:]); !ok {
				named = true
				c.need(i, i+1, "runs code, or changes what is run")
			}
			continue
		}
		if !w.Static {
			c.need(0, 0, "runs what %s is", w.Text)
			return
		}
		c.need(i, i+1, "runs a script file")
		return
	}
	if !named { // else the caller that names the options knows what is read
		c.need(0, 0, "runs what it reads from %s", in)
	}
}

// pager: +COMMAND and options that read key bindings.
func pager(_ *scope, c *Command, _ stdin) {
	for i, w := range c.Words[1:] {
		if !w.known() || w.Static && (strings.HasPrefix(w.Text, "+") || strings.HasPrefix(w.Text, "-k") || strings.HasPrefix(w.Text, "--le") || strings.HasPrefix(w.Text, "--cmd") || w.Text == "--l") {
			c.need(i+1, i+2, "may start a program")
		}
	}
}

// dangerous are the options of a program that start another, or read what to
// do from somewhere. An option that cannot be told is one of them.
type dangerous struct {
	short string // letters
	args  string // letters with a value: what follows in the word is no letter
	long  string // names; an abbreviation is the name, as getopt_long has it
	exact bool   // names are not abbreviated, and one dash is enough: go, java
	words string // operands that are subcommands of that kind
	file  bool   // @FILE is read as options
}

// compilers are options of gcc's and clang's that name a program or a library, or hand
// an option to another program that may. -Wl and its like do that, too; see isLong.
const compilers = "wrapper fplugin fpass-plugin specs B prefix fuse-ld ld-path load config gcc-toolchain gcc-install-dir ccc-install-dir ccc-gcc-name Xlinker Xclang Xassembler Xpreprocessor"

func flagged() map[string]*dangerous {
	return map[string]*dangerous{
		"rg":         {long: "pre hostname-bin", args: "eAfBCgmMtTrjE"},
		"man":        {short: "PHCp", long: "pager html config-file preprocessor", args: "LmMsSreERE"},
		"sort":       {long: "compress-program files0-from", args: "kotSTk"},
		"split":      {long: "filter", args: "abnlCt"},
		"rsync":      {short: "eM", long: "config daemon dparam rsh rsync-path remote-option", args: "fBT"},
		"scp":        {short: "SoFDJ", args: "cilPX"},
		"sftp":       {short: "SoFDJbs", args: "BcilPRX"},
		"wget":       {short: "e", long: "execute config use-askpass input-file", args: "oaitOTwQPUlARDIXBn"},
		"curl":       {short: "K", long: "config engine", args: "oAbcCdDeEFhHmPQrtTuUwxXyYz"},
		"zip":        {short: "T", long: "unzip-command test", args: "btnxi"},
		"cpio":       {long: "rsh-command", args: "CEFHIMOR"},
		"fd":         {short: "xX", long: "exec exec-batch", args: "edEtSocj"},
		"fdfind":     {short: "xX", long: "exec exec-batch", args: "edEtSocj"},
		"bat":        {long: "pager diff", args: "lHrmA"},
		"gcc":        {long: compilers, exact: true, file: true},
		"g++":        {long: compilers, exact: true, file: true},
		"cc":         {long: compilers, exact: true, file: true},
		"c++":        {long: compilers, exact: true, file: true},
		"cpp":        {long: compilers, exact: true, file: true},
		"c89":        {long: compilers, exact: true, file: true},
		"c99":        {long: compilers, exact: true, file: true},
		"gfortran":   {long: compilers, exact: true, file: true},
		"gccgo":      {long: compilers, exact: true, file: true},
		"gcc-ar":     {long: "plugin", exact: true, file: true},
		"gcc-nm":     {long: "plugin", exact: true, file: true},
		"ld.bfd":     {long: "plugin", exact: true, file: true},
		"ld.gold":    {long: "plugin", exact: true, file: true},
		"gold":       {long: "plugin", exact: true, file: true},
		"apt-cache":  {short: "oc", long: "option config-file"},
		"apt-mark":   {short: "oc", long: "option config-file"},
		"apt-config": {short: "oc", long: "option config-file"},
		"rustc":      {short: "CZ", long: "codegen extern", args: "lLoAWDF", file: true},
		"javac":      {long: "J processor Xplugin", exact: true, file: true},
		"ctest":      {short: "S", long: "script build-and-test test-command build-makeprogram", args: "CRELIMTAOjUW"},
		"ninja":      {short: "f", args: "Cjkldtw"},
		"samu":       {short: "f", args: "Cjkldtw"},
		"mypy":       {long: "python-executable"},
		"pylint":     {long: "init-hook load-plugins rcfile"},
		"virtualenv": {short: "p", long: "python"},
		"groff":      {short: "UlL", args: "dfFImMnoPrTwWKA"},
		"troff":      {short: "U", args: "dfFImMnorTwW"},
		"pic":        {short: "U"},
		"batcat":     {long: "pager diff", args: "lHrmA"},
		"clang":      {long: compilers, exact: true, file: true},
		"clang++":    {long: compilers, exact: true, file: true},
		"ld":         {long: "plugin", exact: true, file: true},
		"ar":         {long: "plugin", exact: true, file: true},
		"nm":         {long: "plugin", exact: true, file: true},
		"ranlib":     {long: "plugin", exact: true, file: true},
		"strip":      {long: "plugin", exact: true, file: true},
		"sdiff":      {long: "diff-program", args: "wI"},
		"diff3":      {long: "diff-program", args: "L"},
		"protoc":     {long: "plugin", exact: true, file: true},
		"hg":         {long: "config"},
		"svn":        {long: "diff-cmd diff3-cmd merge-cmd editor-cmd config-option config-dir"},
		"ack":        {long: "pager ackrc", args: "ABCmg"},
		"ag":         {long: "pager", args: "ABCGmp"},
		"patch":      {short: "e", long: "ed", args: "BdDFgioprVxYz"},
		"install":    {long: "strip-program", args: "gmotS"},
		"nmap":       {long: "script", exact: true},
		"tcpdump":    {short: "z", args: "BcCFGijmMrsTVwWyQ"},
		"ip":         {short: "b", long: "batch", words: "netns vrf", args: "f"},
		"dpkg":       {short: "ir", long: "install unpack configure remove purge triggers-only root pre-invoke post-invoke status-logger", args: "D"},
		"column":     {args: "tnNsoc"},
		"xz":         {args: "STMFC"},
		"date":       {long: "file set", short: "fs", args: "drI"},
	}
}

func (d *dangerous) judge(_ *scope, c *Command, _ stdin) {
	first := true
	value := false // the word is the value of the option before it
	for i := 1; i < len(c.Words); i++ {
		w, isValue := &c.Words[i], value
		value = false
		switch {
		case isValue && w.one():
		case !w.known():
			c.need(i, i+1, "may be an option that starts a program, unless -- stands before it")
		case !w.Static || len(w.Text) < 2 || w.Text[0] != '-':
			if w.Static && first && has(d.words, w.Text) {
				c.need(i, i+1, "starts other programs")
			}
			if begins := w.Text + w.Prefix; d.file && (begins == "" || begins[0] == '@') {
				c.need(i, i+1, "reads options from a file")
			}
			first = false
		case w.Text == "--":
			return
		case d.isLong(w.Text) || d.isShort(w.Text):
			c.need(i, min(i+2, len(c.Words)), "starts a program, or reads options from a file")
		default:
			value = d.takesNext(w.Text)
		}
	}
}

// takesNext: the last letter has its value in the next word.
func (d *dangerous) takesNext(w string) bool {
	return !strings.HasPrefix(w, "--") && strings.IndexAny(w[1:], d.args) == len(w)-2
}

func (d *dangerous) isLong(w string) bool {
	name, isLong := strings.CutPrefix(w, "--")
	if !isLong && d.exact {
		name, isLong = w[1:], true
	}
	if !isLong {
		return false
	}
	if d.exact && d.file && len(name) > 2 && name[0] == 'W' && name[2] == ',' && (strings.Contains(name, "plugin") || strings.Contains(name, "@")) {
		return true // -Wl,-plugin,x.so
	}
	name, _, _ = strings.Cut(name, "=")
	for l, rest := "", d.long; rest != ""; {
		l, rest, _ = strings.Cut(rest, " ")
		if l != "" && (l == name || !d.exact && len(name) > 0 && strings.HasPrefix(l, name) || d.exact && strings.HasPrefix(name, l)) {
			return true
		}
	}
	return false
}

func (d *dangerous) isShort(w string) bool {
	if strings.HasPrefix(w, "--") || d.exact && d.short == "" {
		return false
	}
	for i := 1; i < len(w); i++ {
		if strings.IndexByte(d.short, w[i]) >= 0 {
			return true
		}
		if strings.IndexByte(d.args, w[i]) >= 0 {
			return false
		}
	}
	return false
}

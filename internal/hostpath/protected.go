// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"path"
	"strings"
	"sync"
)

// protected is something in a workspace that later runs on the host: with it,
// code inside a read-write workspace would reach out of the sandbox.
type protected struct {
	name string
	dir  bool
	// missing says that it must not come into being either: a user who opens
	// the workspace with its program runs it, without being asked.
	missing bool
	text    string // of the placeholder of a missing file
	why     string
}

// protectedNames are kept as they are at any depth where they exist, and those
// with missing at the top and beside every .git also where they do not. Any other
// that is new after a run is a [Finding]: a list of names is never complete, and
// what is on it only keeps the names that programs are known to run.
//
// Not here on purpose: AGENTS.md, CLAUDE.md and their like (words for an agent,
// which is asked to edit them, and which are seen in the diff); .github and other
// CI files (they run elsewhere, after a review); Makefile, package.json, tests
// and sources (they run when a person runs them, which is what the work in the
// workspace is for).
var protectedNames = []protected{
	{".vscode", true, true, "", "the editor runs its tasks and settings"},
	{".idea", true, true, "", "the editor runs its run configurations"},
	{".zed", true, false, "", "the editor runs its tasks and settings"},
	{".fleet", true, false, "", "the editor runs its run configurations"},
	{".run", true, false, "", "the editor runs its run configurations"},
	{".theia", true, false, "", "the editor runs its tasks and settings"},
	{".vs", true, false, "", "the editor runs its tasks, and what its .suo holds"},
	{".helix", true, false, "", "the editor starts the language servers that it names"},
	{".lapce", true, false, "", "the editor starts the language servers that it names"},
	{".lite_project.lua", false, false, "", "the editor runs it"},
	{".vimspector.json", false, false, "", "the editor starts the debuggers that it names"},
	{".externaltoolbuilders", true, false, "", "the editor runs its builders"},
	{".devcontainer", true, false, "", "the editor runs its initializeCommand on the host"},
	{".devcontainer.json", false, false, "", "the editor runs its initializeCommand on the host"},
	{".exrc", false, false, "", "vi runs it"},
	{".vimrc", false, false, "", "vi runs it"},
	{".gvimrc", false, false, "", "vi runs it"},
	{".lvimrc", false, false, "", "vi runs it"},
	{".nvimrc", false, false, "", "the editor runs it"},
	{".nvim.lua", false, false, "", "the editor runs it"},
	{".dir-locals.el", false, false, "", "Emacs evaluates it"},
	{".dir-locals-2.el", false, false, "", "Emacs evaluates it"},
	{".envrc", false, true, "", "direnv runs it on entering the directory"},
	{".mise.toml", false, false, "", whyMise},
	{"mise.toml", false, false, "", whyMise},
	{".mise.local.toml", false, false, "", whyMise},
	{"mise.local.toml", false, false, "", whyMise},
	{".mise", true, false, "", whyMise},
	{".config/mise", true, false, "", whyMise},
	{"mise/config.toml", false, false, "", whyMise},
	{"mise/config.local.toml", false, false, "", whyMise},
	{".shadowenv.d", true, false, "", "shadowenv evaluates it on entering the directory"},
	{".autoenv.zsh", false, false, "", "the shell runs it on entering the directory"},
	{".autoenv", false, false, "", "the shell runs it on entering the directory"},
	{".rprofile", false, false, "", "R runs it when it starts in the directory"},
	{".renviron", false, false, "", "R takes the file that it runs from it"},
	{".rdata", false, false, "", "R runs the function .First in it when it starts in the directory"},
	{".ghci", false, false, "", "GHCi runs it when it starts in the directory"},
	{".ocamlinit", false, false, "", "OCaml runs it when it starts in the directory"},
	{".octaverc", false, false, "", "Octave runs it when it starts in the directory"},
	{".iex.exs", false, false, "", "IEx runs it when it starts in the directory"},
	{".erlang", false, false, "", "older Erlangs run it when they start in the directory"},
	{".gdbinit", false, false, "", "gdb runs it when it starts in the directory"},
	{".lldbinit", false, false, "", "lldb runs it when it starts in the directory"},
	{".pdbrc", false, false, "", "pdb runs it when it starts in the directory"},
	{".irbrc", false, false, "", "irb runs it when it starts in the directory"},
	{".pryrc", false, false, "", "pry runs it when it starts in the directory"},
	{".byebugrc", false, false, "", "byebug runs it when it starts in the directory"},

	{".husky", true, false, "", "git runs its hooks where core.hooksPath says so"},
	{".githooks", true, false, "", "git runs its hooks where core.hooksPath says so"},
	{".pre-commit-config.yaml", false, false, "", "a git hook runs what it names"},
	{"prek.toml", false, false, "", "a git hook runs what it names"},
	{".overcommit.yml", false, false, "", "a git hook runs what it names"},
	{"captainhook.json", false, false, "", "a git hook runs what it names"},
	{"grumphp.yml", false, false, "", "a git hook runs what it names"},
	{".rusty-hook.toml", false, false, "", "a git hook runs what it names"},
	{"rusty-hook.toml", false, false, "", "a git hook runs what it names"},
	{"hk.pkl", false, false, "", "a git hook runs what it names"},
	{"lefthook.yml", false, false, "", "a git hook runs what it names"},
	{".lefthook.yml", false, false, "", "a git hook runs what it names"},
	{"lefthook.yaml", false, false, "", "a git hook runs what it names"},
	{".lefthook.yaml", false, false, "", "a git hook runs what it names"},
	{"lefthook.toml", false, false, "", "a git hook runs what it names"},
	{".lefthook.toml", false, false, "", "a git hook runs what it names"},
	{"lefthook.json", false, false, "", "a git hook runs what it names"},
	{".lefthook.json", false, false, "", "a git hook runs what it names"},
	{"lefthook-local.yml", false, false, "", "a git hook runs what it names"},
	{".lefthook-local.yml", false, false, "", "a git hook runs what it names"},
	{"lefthook-local.yaml", false, false, "", "a git hook runs what it names"},
	{".lefthook-local.yaml", false, false, "", "a git hook runs what it names"},
	{"lefthook-local.toml", false, false, "", "a git hook runs what it names"},
	{".lefthook-local.toml", false, false, "", "a git hook runs what it names"},
	{"lefthook-local.json", false, false, "", "a git hook runs what it names"},
	{".lefthook-local.json", false, false, "", "a git hook runs what it names"},
	{".lefthook", true, false, "", "a git hook runs its scripts"},
	{".lefthook-local", true, false, "", "a git hook runs its scripts"},

	{".hg", true, false, "", "Mercurial runs the hooks of its hgrc"},
	{".sl", true, false, "", "Sapling runs the hooks of its config"},
	{".jj", true, false, "", "Jujutsu runs what its config names"},
	{".bzr", true, false, "", "Bazaar runs what its config names"},
	{"_darcs", true, false, "", "Darcs runs the hooks of its defaults"},
	{".pijul", true, false, "", "Pijul runs the hooks of its config"},

	{".mcp.json", false, true, "", "agents start the servers it names"},
	{".claude", true, true, "", "an agent's own configuration: its hooks and permissions"},
	{".cursor", true, true, "", "an agent's own configuration: its servers and hooks"},
	{".codex", true, true, "", "an agent's own configuration: its servers and permissions"},
	{".gemini", true, true, "", "an agent's own configuration: its servers and permissions"},
	{".qwen", true, false, "", "an agent's own configuration: its servers and permissions"},
	{".iflow", true, false, "", "an agent's own configuration: its servers and permissions"},
	{".codebuddy", true, false, "", "an agent's own configuration: its hooks and permissions"},
	{".grok", true, false, "", "an agent's own configuration: its servers"},
	{".vibe", true, false, "", "an agent's own configuration: its servers and permissions"},
	{".amp", true, false, "", "an agent's own configuration: its servers and permissions"},
	{".pi", true, false, "", "an agent's own configuration: its extensions"},
	{".openhands", true, false, "", "an agent runs its setup.sh"},
	{".github/hooks", true, false, "", "an agent runs its hooks"},
	{".windsurf", true, false, "", "an agent's own configuration"},
	{".continue", true, false, "", "an agent's own configuration"},
	{".roo", true, false, "", "an agent's own configuration: its servers"},
	{".cline", true, false, "", "an agent's own configuration: its servers"},
	{".kilocode", true, false, "", "an agent's own configuration: its servers"},
	{".kiro", true, false, "", "an agent's own configuration: its servers and hooks"},
	{".amazonq", true, false, "", "an agent's own configuration: its servers"},
	{".trae", true, false, "", "an agent's own configuration: its servers"},
	{".junie", true, false, "", "an agent's own configuration: its servers"},
	{".augment", true, false, "", "an agent's own configuration: its servers"},
	{".factory", true, false, "", "an agent's own configuration: its hooks"},
	{".goose", true, false, "", "an agent's own configuration"},
	{".opencode", true, false, "", "an agent's own configuration: its plugins"},
	{"opencode.json", false, false, "", "an agent's own configuration: its servers"},
	{"opencode.jsonc", false, false, "", "an agent's own configuration: its servers"},
	{".opencode.json", false, false, "", "an agent's own configuration: its servers"},
	{"crush.json", false, false, "", "an agent's own configuration: its servers"},
	{".crush.json", false, false, "", "an agent's own configuration: its servers"},
	{".crush", true, false, "", "an agent's own configuration"},
	{".aider.conf.yml", false, false, "", "an agent's own configuration: its commands"},
	{".goosehints", false, false, "", "an agent's own configuration"},
}

const whyMise = "mise runs what it names on entering the directory"

// gitNames are kept in every repository that code may write in: .git, the
// modules in it, bare repositories. There is no placeholder that could stand for
// a missing commondir but one that says what is the case without it.
var gitNames = []protected{
	{"hooks", true, true, "", "git runs its hooks"},
	{"config", false, true, "", "git runs what it names: core.fsmonitor, aliases, filters"},
	{"config.worktree", false, true, "", "git runs what it names: core.fsmonitor, aliases, filters"},
	{"commondir", false, true, ".\n", "git takes config and hooks from where it says"},
}

// whyRepository is why a repository is kept as a whole.
const whyRepository = "git on the host runs what is in a repository"

// noGit is the placeholder of a .git that does not exist: an empty, read-only
// directory, which git takes for none.
var noGit = protected{".git", true, true, "", "git runs the hooks and config of a repository made here"}

// bareNames are what git knows a bare repository by; all of them must exist.
// Where the top of a workspace is no repository, one of them is kept missing.
var bareNames = []protected{
	{"HEAD", false, true, "", "with it, git would take the directory for a bare repository and run its config"},
	{"refs", false, true, "", "with it, git would take the directory for a bare repository and run its config"},
	{"objects", false, true, "", "with it, git would take the directory for a bare repository and run its config"},
}

// protectedName finds the entry of protectedNames that a path ends in, however it is
// spelled. Those with a slash are known with the directory that they are in.
func protectedName(rel string) (protected, bool) {
	name := plain(path.Base(rel))
	for _, suffix := range workspaceSuffixes {
		if strings.HasSuffix(name, suffix) {
			return protected{name: name, why: "the editor runs its tasks and settings"}, true
		}
	}
	// There is one for each environment, such as mise.test.local.toml.
	if strings.HasPrefix(strings.TrimPrefix(name, "."), "mise.") && strings.HasSuffix(name, ".toml") {
		return protected{name: name, why: whyMise}, true
	}
	known := protectedByName()
	if p, ok := known[name]; ok && p.name != name {
		name = plain(path.Base(path.Dir(rel))) + "/" + name
	}
	p, ok := known[name]
	return p, ok && p.name == name
}

// protectedByName are protectedNames by their names. The last part of one with a slash is
// in it as well.
var protectedByName = sync.OnceValue(func() map[string]protected {
	all := map[string]protected{}
	for _, p := range protectedNames {
		all[path.Base(p.name)] = p
		all[p.name] = p
	}
	return all
})

// workspaceSuffixes end the names of files that an editor opens as it opens .vscode.
var workspaceSuffixes = []string{".code-workspace", ".sublime-project"}

// dependencyDirs are directories that package managers take away and make anew.
// Packages bring editors' folders along, which are not opened there: what is
// protected by its name is no mountpoint in them, so that this goes on, and is
// compared after the run.
var dependencyDirs = []string{"node_modules", "bower_components", ".venv", "venv", ".tox", ".nox"}

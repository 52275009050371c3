// SPDX-License-Identifier: Apache-2.0

package hostpath

import "strings"

// protected is something in a workspace that later runs on the host: with it,
// code inside a read-write workspace would reach out of the sandbox.
type protected struct {
	name string
	dir  bool
	// missing says that it must not come into being either: whoever opens the
	// workspace with the program it belongs to runs it, without being asked
	// anything about it.
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
// which is asked to edit them, and which are seen in the diff); .github and
// other CI files (they run elsewhere, after a review); Makefile, package.json,
// tests and sources (they run when somebody runs them, which is what the work
// in the workspace is for).
var protectedNames = []protected{
	{".vscode", true, true, "", "the editor runs its tasks and settings"},
	{".idea", true, true, "", "the editor runs its run configurations"},
	{".zed", true, false, "", "the editor runs its tasks and settings"},
	{".fleet", true, false, "", "the editor runs its run configurations"},
	{".devcontainer", true, false, "", "the editor runs its initializeCommand on the host"},
	{".devcontainer.json", false, false, "", "the editor runs its initializeCommand on the host"},
	{".exrc", false, false, "", "vi runs it"},
	{".vimrc", false, false, "", "vi runs it"},
	{".lvimrc", false, false, "", "vi runs it"},
	{".nvimrc", false, false, "", "the editor runs it"},
	{".nvim.lua", false, false, "", "the editor runs it"},
	{".dir-locals.el", false, false, "", "Emacs evaluates it"},
	{".dir-locals-2.el", false, false, "", "Emacs evaluates it"},
	{".envrc", false, true, "", "direnv runs it on entering the directory"},
	{".mise.toml", false, false, "", "mise runs it on entering the directory"},
	{"mise.toml", false, false, "", "mise runs it on entering the directory"},
	{".mise.local.toml", false, false, "", "mise runs it on entering the directory"},
	{"mise.local.toml", false, false, "", "mise runs it on entering the directory"},
	{".mise", true, false, "", "mise runs what its config names on entering the directory"},
	{".autoenv.zsh", false, false, "", "the shell runs it on entering the directory"},
	{".autoenv", false, false, "", "the shell runs it on entering the directory"},
	{".rprofile", false, false, "", "R runs it when it starts in the directory"},
	{".gdbinit", false, false, "", "gdb runs it when it starts in the directory"},
	{".lldbinit", false, false, "", "lldb runs it when it starts in the directory"},
	{".pdbrc", false, false, "", "pdb runs it when it starts in the directory"},
	{".irbrc", false, false, "", "irb runs it when it starts in the directory"},
	{".pryrc", false, false, "", "pry runs it when it starts in the directory"},

	{".husky", true, false, "", "git runs its hooks where core.hooksPath says so"},
	{".githooks", true, false, "", "git runs its hooks where core.hooksPath says so"},
	{".pre-commit-config.yaml", false, false, "", "a git hook runs what it names"},
	{"prek.toml", false, false, "", "a git hook runs what it names"},
	{".overcommit.yml", false, false, "", "a git hook runs what it names"},
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
	{"lefthook-local.toml", false, false, "", "a git hook runs what it names"},
	{"lefthook-local.json", false, false, "", "a git hook runs what it names"},
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

// protectedName finds an entry of protectedNames, however it is spelled.
func protectedName(name string) (protected, bool) {
	name = plain(name)
	if strings.HasSuffix(name, workspaceSuffix) {
		return protected{name: name, why: "the editor runs its tasks and settings"}, true
	}
	for _, p := range protectedNames {
		if p.name == name {
			return p, true
		}
	}
	return protected{}, false
}

// workspaceSuffix ends the names of files that an editor opens as it opens .vscode.
const workspaceSuffix = ".code-workspace"

// dependencyDirs are directories that package managers take away and make anew.
// Packages bring editors' folders along, which nobody opens there: what is
// protected by its name is no mountpoint in them, so that this goes on, and is
// compared after the run.
var dependencyDirs = []string{"node_modules", "bower_components", ".venv", "venv", ".tox", ".nox"}

// SPDX-License-Identifier: Apache-2.0

package hostpath

import "strings"

// What a name in a repository's own directory is.
type gitKind int

const (
	gitUnknown    gitKind = iota // some other program's, which may run what it finds there
	gitPlain                     // git's: it runs nothing because of it
	gitUnfinished                // git's: a rebase or the like, which goes on by what is written there
	gitKept                      // of gitNames, and those that tell a repository
)

const (
	whyUnfinished = "git rebase --continue runs what its to-do list says"
	whyUnknown    = "caisson does not know which program reads it in .git"
)

var gitKinds = map[string]gitKind{
	"hooks": gitKept, "config": gitKept, "config.worktree": gitKept, "commondir": gitKept,
	"HEAD": gitKept, "objects": gitKept, "refs": gitKept,

	"rebase-merge": gitUnfinished, "rebase-apply": gitUnfinished, "sequencer": gitUnfinished,

	"index": gitPlain, "info": gitPlain, "logs": gitPlain, "modules": gitPlain, "worktrees": gitPlain, "gitdir": gitPlain, "locked": gitPlain,
	"packed-refs": gitPlain, "reftable": gitPlain, "shallow": gitPlain, "description": gitPlain, "branches": gitPlain, "remotes": gitPlain,
	"lfs": gitPlain, "rr-cache": gitPlain, "gc.log": gitPlain, "gc.pid": gitPlain, "AUTO_MERGE": gitPlain, "NOTES_MERGE_WORKTREE": gitPlain,
	"git-daemon-export-ok": gitPlain, "fsmonitor--daemon": gitPlain, "fsmonitor--daemon.ipc": gitPlain, "maintenance.lock": gitPlain,
}

// gitEntry says what a name in a repository's own directory is; plain says that
// nothing has to be said of a new one.
func gitEntry(name string) (kind gitKind, plain bool) {
	if k, ok := gitKinds[name]; ok {
		return k, k == gitPlain || k == gitKept
	}
	base := strings.TrimSuffix(name, ".lock")
	if base != name {
		k, plain := gitEntry(base)
		return k, plain
	}
	if _, known := gitKinds[strings.ToLower(name)]; known {
		return gitUnknown, false // HOOKS: some file systems take it for hooks
	}
	// ORIG_HEAD, MERGE_MSG, COMMIT_EDITMSG, BISECT_LOG: git's states have such names.
	if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" || strings.HasPrefix(name, "sharedindex.") || strings.HasPrefix(name, "index.") || strings.HasPrefix(name, "packed-refs.") {
		return gitPlain, true
	}
	return gitUnknown, false
}

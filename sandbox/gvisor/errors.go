// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"strings"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// maxWords bounds what is told of gVisor's own words, in bytes: some have its state in them,
// in many kilobytes.
const maxWords = 600

// explain turns gVisor's words for a sandbox that could not be made into an
// error with a hint. What the shim knows better than its words say stays.
func explain(ev *protocol.Event) error {
	text := ev.Error
	if ev.Advice != nil && ev.Advice.Hint != "" {
		e := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: sandbox.Clip(text, maxWords)}
		ev.Advice.Over(e)
		return e
	}
	e := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "gVisor could not make it: " + sandbox.Clip(text, maxWords)}
	switch {
	case strings.Contains(text, "does not match across checkpoint restore"): // with pages of both
		e.Problem = "what its policy gives it of this host, or has it trust, is not what it was paused or written down with"
		e.Hint = "let it go on with the policy that it had then, or make another one"
	case strings.Contains(text, "operation not permitted"), strings.Contains(text, "permission denied"):
		e.Hint = "caisson doctor tells what this host does not allow and how to mend it"
	case strings.Contains(text, "fork/exec") && strings.Contains(text, "no space left"):
		// What clone(2) says when user.max_user_namespaces is reached.
		e.Problem = "this host lets no more user namespaces be made"
		e.Hint = "caisson doctor tells how to mend it"
	case strings.Contains(text, "no space left") && onStage(text):
		e.Problem = "what gVisor keeps of its command line, environment and mounts is more than the memory set aside for that"
		e.Hint = "make them shorter, or hand it over in a file"
	case strings.Contains(text, "no space left"):
		e.Problem = "the host's disk is full"
		e.Hint = "free some space, or set CAISSON_STATE to a directory on another disk"
	case strings.Contains(text, "waiting for sandbox to start: EOF") && spaceBound() != "":
		e.Problem = "gVisor's kernel did not start: the address space of this process is bounded to " + spaceBound()
		e.Hint = "take ulimit -v away (a systemd unit: LimitAS=), and bound the program inside with --memory"
	case strings.Contains(text, "waiting for sandbox to start: EOF"): // it has died, and said nothing
		e.Hint = "caisson doctor tells what this host does not allow; a limit of this shell may be too low for it, too (ulimit -a)"
	case strings.Contains(text, "cannot allocate memory"):
		e.Problem = "there is not enough memory to start it"
		e.Hint = "raise --memory, or stop something else"
	case strings.Contains(text, "CompleteRestore() failed") && isOther(text):
		// It had a file of the host's open, or an image, which is gone or is another. All else
		// may pass, and is no reason to lose the memory.
		e.Kind, e.Cause = sandbox.ErrUnsupported, sandbox.ErrMisfit
		e.Problem = "its memory was kept with files that are not there any more: " + sandbox.Clip(text[strings.Index(text, "CompleteRestore"):], maxWords)
		e.Hint = "put them back, or make a new sandbox"
	}
	ev.Advice.Over(e)
	return e
}

// isOther says of a file that is opened again whether it is gone, or not the one that it was.
func isOther(text string) bool {
	for _, words := range []string{"no such file or directory", "not a directory", "superblock mismatch"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// onStage reports whether an error is about a file on the stage of a privileged shim,
// which is memory: the bundle, or gVisor's own state (package shim). A state directory
// may lie in /run, too, under another name.
func onStage(text string) bool { return strings.Contains(text, "/run/.caisson/") }

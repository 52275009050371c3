// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/attack/probe"
)

// judge is one case's evidence: what the host sees of it, if anything, makes it
// red, and so does a canary that came out. On a kernel that is the host's, a
// system call that worked does too.
func (e *evidence) judge(id string) (Verdict, string) {
	tried := e.out.Of(id)
	for _, t := range tried {
		if strings.Contains(t.Found, e.token(id)) {
			return Breach, fmt.Sprintf("%s: the canary came out", t.What)
		}
	}
	how := judges()[id]
	if why := how.see(e); why != "" {
		return Breach, why
	}
	if how.believed && e.shared {
		for _, t := range tried {
			if t.Got {
				why := t.What + ": the host's kernel let it"
				if t.Error != "" {
					why = fmt.Sprintf("%s: the host's kernel answered it (%s)", t.What, t.Error)
				}
				return Breach, why
			}
		}
	}
	blind := e.blind()
	switch {
	case len(tried) == 0:
		return Unclear, "the probe did not try"
	case how.needs != nil && how.needs(e) != "":
		return NotApplicable, how.needs(e)
	case blind != nil && os.Geteuid() != 0 && errors.Is(blind.hidden, fs.ErrPermission):
		return NotApplicable, "it was tried, but what came of it shows to root only: an engine's processes are not the caller's; run caisson attack as root"
	case blind != nil:
		return Unclear, fmt.Sprintf("the host could not look at %s: %v", blind, blind.hidden)
	case len(e.insiders()) == 0:
		return Unclear, "the host sees no process of the sandbox"
	}
	for _, p := range e.insiders() {
		if p.hidden != nil && id == "K19" {
			return Pass, fmt.Sprintf("%s shows its namespaces and descriptors to root only", p)
		}
	}
	return Pass, ""
}

// judging is how a case is judged.
type judging struct {
	see      func(*evidence) string // what the host sees; empty is nothing
	believed bool                   // what the probe has got it has got, where the kernel is the host's
	needs    func(*evidence) string // why the case shows nothing here
}

// judges are those of the live sandbox.
func judges() map[string]judging {
	nothing := func(*evidence) string { return "" }
	held := func(what func(descriptor) bool) judging { return judging{see: seeDescriptor(what), believed: true} }
	link := func(names ...string) judging {
		return held(func(d descriptor) bool { return slices.Contains(names, d.link) })
	}
	socket := func(protocols ...string) judging {
		return held(func(d descriptor) bool { return slices.Contains(protocols, d.protocol) })
	}
	return map[string]judging{
		"F01": held(func(d descriptor) bool { return d.write && strings.Contains(d.link, "/proc/sys/") }),
		"F02": held(func(d descriptor) bool { return d.write && strings.HasSuffix(d.link, "/sysrq-trigger") }),
		"F03": held(func(d descriptor) bool { return d.write && helper(d.link) }),
		"F04": {see: func(e *evidence) string { return e.mounted("cgroup", "cgroup2") }, believed: true},
		"F05": {see: seeDescriptor(strangeDevice), believed: true},
		"F06": {see: seePlant("F06"), believed: true, needs: func(e *evidence) string {
			if len(e.config.Handle) == 0 {
				return "the file system of the host's temporary directory has no handles"
			}
			return ""
		}},
		"F09": {see: seeChanged("F09")},
		"F12": {see: nothing},
		"F13": {see: nothing},
		"F14": {see: nothing},
		"F15": {see: seeChanged("F15")},
		"F16": {see: seeChanged("F16")},
		"F17": {see: func(e *evidence) string {
			if why := seePlant("F17")(e); why != "" {
				return why
			}
			return seeDescriptor(account)(e)
		}},
		"F18": {see: seeDescriptor(kernelFile)},
		"F19": {see: seePlant("F19")},
		"F21": {see: func(e *evidence) string {
			if why := seeChanged("F21")(e); why != "" {
				return why
			}
			return e.remounted()
		}},
		"F26": {see: (*evidence).runnable},
		"F22": {see: func(e *evidence) string {
			if why := e.mounted("overlay", "fuse"); why != "" {
				return why
			}
			return e.marked(filepath.Join(e.workspace, "F22"))
		}},
		"F25": {see: func(e *evidence) string { return e.waited }},
		"K01": socket("ALG", "AF_ALG"),
		"K02": held(func(d descriptor) bool { return strings.Contains(d.link, probe.MemfdName("i386", e32)) }),
		"K03": held(func(d descriptor) bool { return strings.Contains(d.link, probe.MemfdName("x32", e32)) }),
		"K04": link("anon_inode:[io_uring]"),
		"K05": {see: nothing, believed: true},
		"K06": socket("AF_VSOCK"),
		"K07": socket("PACKET", "RAW", "RAWv6", "RXRPC", "KEY", "XDP"),
		"K08": link("anon_inode:bpf-map", "anon_inode:[perf_event]", "anon_inode:[userfaultfd]", "anon_inode:[fscontext]", "anon_inode:[fanotify]", "anon_inode:fanotify"),
		"K09": {see: func(e *evidence) string {
			if e.keyFrom() {
				return "a key that was added inside lies in a keyring of the caller"
			}
			return ""
		}, believed: true},
		"K10": {see: (*evidence).newUserNamespace, believed: true},
		"K11": {see: func(e *evidence) string {
			if e.traced != "" && e.traced != "0" {
				return "process " + e.traced + " traces a process of the host"
			}
			return ""
		}},
		"K12": {see: (*evidence).otherPersonality, believed: true},
		"K13": {see: (*evidence).privileged, believed: true},
		"K14": {see: (*evidence).becameRoot, needs: func(e *evidence) string {
			if _, err := os.Stat(filepath.Join(e.data, "K14")); err != nil {
				return "only root can leave a set-user-id program of root for it, where there is a program id"
			}
			return ""
		}},
		"K15": {see: (*evidence).terminals, believed: true},
		"K16": {see: func(e *evidence) string {
			if e.hit.Load() {
				return "a process of the host got the signal"
			}
			return ""
		}},
		"K17": {see: seePlant("K17")},
		"K19": {see: (*evidence).unlike},
		"K20": {see: (*evidence).unfiltered, believed: true},
		"K21": {see: (*evidence).pooled, believed: true},
		"K22": {see: (*evidence).siblings, believed: true},
		"S01": {see: nothing},
		"S02": {see: (*evidence).environments},
		"S03": {see: seePlant("S03")},
		"S04": {see: func(e *evidence) string {
			if e.records != "" {
				return "its value lies in " + e.records
			}
			return ""
		}},
		"S08": {see: (*evidence).connected},
		"N01": {see: seeTouched("N01")},
		"N03": {see: seeTouched("N03")},
		"N04": {see: seeTouched("N04")},
		"L07": {see: (*evidence).leftGroup},
	}
}

// e32 stands for any nonce: only this suite makes memfds of that name.
const e32 = "caisson-attack-"

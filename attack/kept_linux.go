// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// ownPolicy has code change the policy that it runs under, which lies in the workspace
// that the policy mounts read-write.
func (s *suite) ownPolicy(ctx context.Context) finding {
	if s.Open == nil {
		return unable(sandbox.Errorf(sandbox.ErrUnsupported, "attack", "this program opens no caisson for it"))
	}
	dir := filepath.Join(s.dir, "F23")
	d := &desk{state: dir + "/state", work: dir + "/work", policy: dir + "/work/conf/deep/policy.yaml", suite: s}
	err := os.MkdirAll(filepath.Dir(d.policy), 0o755)
	for at := filepath.Dir(d.policy); err == nil && at != dir; at = filepath.Dir(at) {
		err = os.Chmod(at, 0o777)
	}
	if err == nil {
		err = d.reopen(ctx, "")
	}
	if err != nil {
		return unable(err)
	}
	defer d.Close()
	if err := os.Chmod(d.policy, 0o666); err != nil { // it is not the mode that keeps it
		return unable(err)
	}
	before, err := identity(d.policy)
	if err != nil {
		return unable(err)
	}
	if f := d.works("control", d.run(ctx, "bash", "-c", "mkdir control")); f.verdict != Pass {
		return f
	}
	const p = "conf/deep/policy.yaml"
	for _, line := range []string{
		"echo '# evil' >>" + p,
		"cp " + p + " new; echo '# evil' >>new; mv -f new " + p,
		"rm -f " + p + "; echo evil >" + p,
		"ln " + p + " other; echo '# evil' >>other",
		"mv conf/deep conf/old; mkdir conf/deep; echo evil >" + p,
		"mv conf old; mkdir -p conf/deep; echo evil >" + p,
		"mkdir -p next/deep; echo evil >next/deep/policy.yaml; mv --exchange conf next || mv -T next conf; rm -rf conf; mv next conf",
		"rm -rf conf/deep; ln -s /tmp conf/deep",
	} {
		_ = d.run(ctx, "bash", "-c", line)
		if ctx.Err() != nil {
			return unable(ctx.Err())
		}
		if after, err := identity(d.policy); err != nil || after != before {
			return breach("the next run's policy is what code made: %s", shorten(line))
		}
	}
	return pass()
}

// identity is which file a name leads to, and what is in it.
func identity(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(name)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(st.Dev, st.Ino, string(text)), err
	}
	return "", errors.ErrUnsupported
}

// releasedNames has code leave what git, editors and agents run where it is
// collected by plain patterns, and files in the place of others.
func (s *suite) releasedNames(ctx context.Context) finding {
	dest := filepath.Join(s.dir, "F24", "collected")
	theirs := filepath.Join(dest, "Makefile")
	if err := errors.Join(os.MkdirAll(dest, 0o755), os.WriteFile(theirs, []byte("the host's"), 0o644)); err != nil {
		return unable(err)
	}
	const plant = `for at in out out/sub; do
mkdir -p $at/objects/ab $at/refs/heads $at/hooks $at/.git/hooks $at/.GIT $at/.vscode $at/.claude
echo 'ref: refs/heads/main' >$at/HEAD; cp $at/HEAD $at/.git/HEAD; echo x >$at/objects/ab/x; echo x >$at/refs/heads/x
for f in config hooks/post-checkout .git/config .git/hooks/post-checkout .GIT/config .vscode/tasks.json .claude/settings.json lefthook.yml MISE.toml opencode.json Makefile report; do echo evil >$at/$f; done; done`
	for _, pattern := range []string{"out/**", "out/**/.*", "out/**/.*/**", "out/**/*.*", "out/*", "out/.*"} {
		c := &session.Call{Frontend: "attack", Call: policy.Call{Actor: who, Operator: true, Isolation: s.Isolation, Argv: []string{"bash", "-c", plant}, Collect: []policy.CollectWish{collectWish(pattern, dest)}}}
		res, err := s.Session.Do(ctx, c, session.IO{})
		if err != nil {
			return unable(err)
		}
		if res.Status == sandbox.StatusDenied {
			return unable(&sandbox.Error{Kind: sandbox.ErrDenied, Problem: res.Reason, Hint: res.Hint, Rule: res.Rule})
		}
		if what := runnable(dest); what != "" {
			return breach("%s came out by the pattern %s", what, pattern)
		}
		if text, err := os.ReadFile(theirs); err != nil || string(text) != "the host's" {
			return breach("a file of the host's was replaced by the pattern %s", pattern)
		}
	}
	if _, err := os.Stat(filepath.Join(dest, "report")); err != nil {
		return finding{verdict: Unclear, reason: "what may come out did not"}
	}
	return pass()
}

// runnable names what in a directory git, an editor or an agent would run without being
// asked to.
func runnable(dir string) (what string) {
	names := []string{".git", ".vscode", ".claude", "lefthook.yml", "mise.toml", "opencode.json"}
	_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		for _, name := range names {
			if strings.EqualFold(d.Name(), name) {
				what = d.Name()
			}
		}
		if d.IsDir() && exist(at+"/HEAD") && exist(at+"/objects") && exist(at+"/refs") {
			what = "a repository"
		}
		return nil
	})
	return what
}

func exist(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

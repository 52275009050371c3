// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// person answers at a terminal.
type person func(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error)

func (p person) Ask(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
	return p(ctx, r)
}
func (p person) Channel() approval.Channel { return approval.Terminal }

// says is a person who answers at once.
func says(yes bool) person {
	return func(_ context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
		return approval.AtTerminal("tester"), question.Answer{Yes: yes, Digest: r.Seal(), Note: "no"}, nil
	}
}

const asksProg = "version: 1\ncommands: {allow: [ls], ask: [\"prog *\", \"./deploy *\"]}\napprovals: {channels: [terminal, cli]}\n"

// askBench is a bench whose policy asks about the program that it runs. Times of
// approvals are clock's.
type askBench struct {
	*bench
	d         *stub
	approvals *question.Approvals
	store     *approval.Store
	skew      *atomic.Int64
}

func newAskBench(t *testing.T, src string) *askBench {
	t.Helper()
	b := &askBench{d: &stub{}, skew: &atomic.Int64{}}
	b.bench = newBench(t, b.d, func(o *Options) {
		o.Policy = parsePolicy(t, src)
		b.approvals = question.New(question.Options{Dir: o.State.Path(), Journal: o.Journal, Link: func(id string) string { return "https://here/" + id }, Now: func() time.Time {
			return time.Now().Add(time.Duration(b.skew.Load()))
		}})
		o.Approvals = b.approvals
	})
	t.Cleanup(func() { b.approvals.Close() })
	b.store = approvaltest.Store(t, b.approvals)
	return b
}

func parsePolicy(t *testing.T, src string) *policy.Policy {
	t.Helper()
	f, err := policy.Parse("/w/p.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	// Roots of these tests are temporary directories.
	if !f.Files.Rootfs.Said() {
		f.Files.Rootfs = policy.Value[string]{V: "/", At: policy.Pos{Line: 1, Column: 1}}
	}
	p, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// enroll makes an approver.
func (b *askBench) enroll(t *testing.T) approval.Who {
	t.Helper()
	return approvaltest.Ada(t, b.store, approval.CLI)
}

func (b *askBench) wantDenied(t *testing.T, what string, res *sandbox.Result, err error, says string) {
	t.Helper()
	if err != nil || res == nil || res.Status != sandbox.StatusDenied || !strings.Contains(res.Reason, says) || res.Rule == "" {
		t.Errorf("%s: %+v, %v; want a denial that says %q", what, res, err, says)
	}
	if b.d.ran != 0 {
		t.Errorf("%s: it ran", what)
		b.d.ran = 0
	}
}

// kinds are the records, oldest first, as kind/status/approver.
func (b *askBench) kinds(t *testing.T) []string {
	t.Helper()
	var out []string
	for r, err := range b.log.Query(t.Context(), audit.Filter{OldestFirst: true}) {
		if err != nil {
			t.Fatal(err)
		}
		s := r.Call.Kind + " " + string(r.Status)
		if r.Call.Approval != nil {
			s += " " + r.Call.Approval.Approver
		}
		out = append(out, s)
	}
	return out
}

func asked(t *testing.T, change func(*Call)) *Call {
	tr := tree(t)
	return call(t, func(c *Call) {
		c.Argv, c.Rootfs = []string{"prog", "now"}, tr
		if change != nil {
			change(c)
		}
	})
}

func TestYesAtTheTerminal(t *testing.T) {
	b := newAskBench(t, asksProg)
	var seen *approval.Request
	c := asked(t, func(c *Call) {
		c.Ask = person(func(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			seen = r
			if b.d.ran != 0 {
				t.Error("it ran before anybody answered")
			}
			// Nothing is held while people think.
			if left, err := filepath.Glob(filepath.Join(b.state.Path(), "run", "sbx_*")); err != nil || len(left) > 0 {
				t.Errorf("%q is held, %v", left, err)
			}
			return says(true)(ctx, r)
		})
	})
	res, err := b.Do(t.Context(), c, IO{})
	if err != nil || res.Status != sandbox.StatusSuccess || b.d.ran != 1 {
		t.Fatalf("%+v, %v, ran %d times", res, err, b.d.ran)
	}
	if seen.Actor != "tester" || !strings.Contains(seen.View.String(), "program:\n  │ prog\nargument 1:\n  │ now\n") {
		t.Errorf("%s was shown\n%s", seen.Actor, seen.View.String())
	}
	want := []string{"ask_approval allowed ", "answer_approval allowed terminal:tester", "run_command allowed terminal:tester"}
	if got := b.kinds(t); !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

func TestNoAndNobody(t *testing.T) {
	b := newAskBench(t, asksProg)
	res, err := b.Do(t.Context(), asked(t, func(c *Call) { c.Ask = says(false) }), IO{})
	b.wantDenied(t, "no", res, err, "terminal:tester denied it: no")
	want := []string{"ask_approval allowed ", "answer_approval allowed terminal:tester", "run_command refused"}
	if got := b.kinds(t); !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	res, err = b.Do(t.Context(), asked(t, nil), IO{})
	b.wantDenied(t, "nobody to ask", res, err, "no approver can be asked")
	res, err = b.Do(t.Context(), asked(t, func(c *Call) {
		c.Ask = person(func(context.Context, *approval.Request) (approval.Who, question.Answer, error) {
			return approval.Who{}, question.Answer{}, errors.New("the terminal is gone")
		})
	}), IO{})
	b.wantDenied(t, "the terminal went away", res, err, "taken back")
	for name, a := range map[string]person{
		"who is nobody": func(_ context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			return approval.Who{}, question.Answer{Yes: true, Digest: r.Digest}, nil
		},
		"who answers by another way": func(_ context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			return approval.ByElicitation("agent"), question.Answer{Yes: true, Digest: r.Digest}, nil
		},
		"who has seen something else": func(_ context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			return approval.AtTerminal("tester"), question.Answer{Yes: true, Digest: strings.Repeat("0", 64)}, nil
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		res, err = b.Do(ctx, asked(t, func(c *Call) { c.Ask = a }), IO{})
		cancel()
		if res == nil || res.Status != sandbox.StatusDenied || b.d.ran != 0 {
			t.Errorf("%s: %+v, %v, ran %d times", name, res, err, b.d.ran)
		}
	}
	b2 := newBench(t, b.d, func(o *Options) { o.Policy = parsePolicy(t, asksProg) })
	res, err = b2.Do(t.Context(), asked(t, func(c *Call) { c.Ask = says(true) }), IO{})
	b.wantDenied(t, "no approvals here", res, err, "no approver can be asked here")
}

// An approver answers from another process: here, another handle on the files.
func TestYesFromElsewhere(t *testing.T) {
	for _, yes := range []bool{true, false} {
		b := newAskBench(t, asksProg)
		who := b.enroll(t)
		other := question.New(question.Options{Dir: b.state.Path(), Journal: b.log})
		defer other.Close()
		never := person(func(ctx context.Context, _ *approval.Request) (approval.Who, question.Answer, error) {
			<-ctx.Done()
			return approval.Who{}, question.Answer{}, ctx.Err()
		})
		done := make(chan *sandbox.Result, 1)
		waits := make(chan struct{})
		go func() {
			res, err := b.Do(t.Context(), asked(t, func(c *Call) { c.Ask, c.OnNotice = never, func(string) { close(waits) } }), IO{})
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		select {
		case <-waits:
		case res := <-done:
			t.Fatalf("nobody was asked: %+v", res)
		}
		list, err := b.store.List(t.Context(), approval.Pending)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if _, err := other.Answer(t.Context(), who, list[0].ID, question.Answer{Yes: yes, Digest: list[0].Digest}); err != nil {
			t.Fatal(err)
		}
		res := <-done
		if (res.Status == sandbox.StatusSuccess) != yes || (b.d.ran == 1) != yes {
			t.Errorf("%v: %+v, ran %d times", yes, res, b.d.ran)
		}
	}
}

// No answer is a no, and so is going away.
func TestNoAnswer(t *testing.T) {
	b := newAskBench(t, asksProg)
	late := person(func(ctx context.Context, _ *approval.Request) (approval.Who, question.Answer, error) {
		b.skew.Store(int64(time.Hour))
		<-ctx.Done()
		return approval.Who{}, question.Answer{}, ctx.Err()
	})
	res, err := b.Do(t.Context(), asked(t, func(c *Call) { c.Ask = late }), IO{})
	b.wantDenied(t, "no answer", res, err, "in time")
	ctx, cancel := context.WithCancel(t.Context())
	away := person(func(ctx context.Context, _ *approval.Request) (approval.Who, question.Answer, error) {
		cancel()
		<-ctx.Done()
		return approval.Who{}, question.Answer{}, ctx.Err()
	})
	res, err = b.Do(ctx, asked(t, func(c *Call) { c.Ask = away }), IO{})
	b.wantDenied(t, "gone", res, err, "given up")
	list, err := b.store.List(t.Context())
	if err != nil || len(list) != 2 || list[0].State != approval.Cancelled && list[1].State != approval.Cancelled {
		t.Errorf("%+v, %v", list, err)
	}
}

// pend makes a call that does not wait, and has it approved.
func (b *askBench) pend(t *testing.T, who approval.Who, c *Call, io IO) string {
	t.Helper()
	c.Resumable = true
	res, err := b.Do(t.Context(), c, io)
	var p *question.Pending
	if !errors.As(err, &p) || res != nil || b.d.ran != 0 {
		t.Fatalf("%+v, %v, ran %d times", res, err, b.d.ran)
	}
	if _, err := b.approvals.Answer(t.Context(), who, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Seal()}); err != nil {
		t.Fatal(err)
	}
	return p.Token
}

// P08 at the road: a token is for the call that was approved, once.
func TestTokenIsForOneCall(t *testing.T) {
	work := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tr := tree(t)
	mine := func(c *Call) {
		c.Argv, c.Rootfs, c.Env = []string{"./deploy", "conf", "--with=more"}, tr, map[string]string{"A": "1"}
		c.Workspace = &policy.MountWish{Source: work, Access: sandbox.ReadOnly}
	}
	src := strings.Replace(asksProg, "version: 1\n", "version: 1\nenv: {pass: [A, B]}\nfiles: {workspace: {source: "+work+", mode: rw}}\n", 1)
	for name, change := range map[string]func(b *askBench, c *Call, io *IO){
		"":                  nil,
		"argument":          func(_ *askBench, c *Call, _ *IO) { c.Argv = []string{"./deploy", "conf", "--with=less"} },
		"one more":          func(_ *askBench, c *Call, _ *IO) { c.Argv = append(c.Argv, "") },
		"variable":          func(_ *askBench, c *Call, _ *IO) { c.Env = map[string]string{"A": "2"} },
		"one more variable": func(_ *askBench, c *Call, _ *IO) { c.Env = map[string]string{"A": "1", "B": ""} },
		"directory":         func(_ *askBench, c *Call, _ *IO) { c.Cwd = "/tmp" },
		"input":             func(_ *askBench, _ *Call, io *IO) { io.Stdin = strings.NewReader("other") },
		"no input":          func(_ *askBench, _ *Call, io *IO) { io.Stdin = nil },
		"limit": func(_ *askBench, c *Call, _ *IO) {
			c.Limits.Memory, c.Limits.Explicit = 1<<26, map[sandbox.LimitName]bool{sandbox.LimitMemory: true}
		},
		"who asks":            func(_ *askBench, c *Call, _ *IO) { c.Actor = "another" },
		"mode of the mount":   func(_ *askBench, c *Call, _ *IO) { c.Workspace.Access = sandbox.CopyOnWrite },
		"the program":         func(*askBench, *Call, *IO) { write("deploy", "#!/bin/sh\nrm -rf /") },
		"a file that it gets": func(*askBench, *Call, *IO) { write("conf", "changed") },
		"a file in an option": func(*askBench, *Call, *IO) { write("more", "changed") },
		"policy": func(b *askBench, _ *Call, _ *IO) {
			o := b.Session.o
			o.Policy = parsePolicy(t, strings.Replace(src, "allow: [ls]", "allow: [ls, cat]", 1))
			b.Session, _ = New(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			write("deploy", "#!/bin/sh\necho deploy")
			write("conf", "x")
			write("more", "y")
			b := newAskBench(t, src)
			token := b.pend(t, b.enroll(t), call(t, mine), IO{Stdin: strings.NewReader("in")})
			again := func() (*sandbox.Result, error) {
				c, io := call(t, mine), IO{Stdin: strings.NewReader("in")}
				if change != nil {
					change(b, c, &io)
				}
				c.Approval, c.Resumable = token, true
				return b.Do(t.Context(), c, io)
			}
			res, err := again()
			if change == nil {
				if err != nil || res.Status != sandbox.StatusSuccess || b.d.ran != 1 {
					t.Fatalf("%+v, %v", res, err)
				}
				b.d.ran = 0
				res, err = again()
				b.wantDenied(t, "replay", res, err, "used already")
				return
			}
			b.wantDenied(t, name, res, err, "")
			change = nil
			write("deploy", "#!/bin/sh\necho deploy")
			write("conf", "x")
			write("more", "y")
			if name != "who asks" && name != "policy" && name != "directory" { // those come to no approval
				res, err = again()
				b.wantDenied(t, name+", then the right one", res, err, "ended it")
			}
		})
	}
}

// What is in the workspace may change while a person looks at it. Then they said
// yes to something else than what would run.
func TestChangedWhileAsked(t *testing.T) {
	work := t.TempDir()
	script := filepath.Join(work, "deploy")
	if err := os.WriteFile(script, []byte("echo harmless"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newAskBench(t, strings.Replace(asksProg, "version: 1\n", "version: 1\nfiles: {workspace: {source: "+work+"}}\n", 1))
	res, err := b.Do(t.Context(), asked(t, func(c *Call) {
		c.Argv, c.Workspace = []string{"./deploy", "now"}, &policy.MountWish{Source: work, Access: sandbox.CopyOnWrite}
		c.Ask = person(func(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			if !strings.Contains(r.View.String(), "/workspace/deploy") {
				t.Errorf("the script is not shown:\n%s", r.View.String())
			}
			if err := os.WriteFile(script, []byte("rm -rf /"), 0o755); err != nil {
				t.Error(err)
			}
			return says(true)(ctx, r)
		})
	}), IO{})
	b.wantDenied(t, "a changed script", res, err, "not what approval was asked for")
}

// Before the answer the same call says that it still waits.
func TestStillPending(t *testing.T) {
	b := newAskBench(t, asksProg)
	b.enroll(t)
	c := asked(t, func(c *Call) { c.Resumable = true })
	_, err := b.Do(t.Context(), c, IO{})
	var p *question.Pending
	if !errors.As(err, &p) || !errors.Is(err, sandbox.ErrDenied) {
		t.Fatal(err)
	}
	c.Approval = p.Token
	if _, err := b.Do(t.Context(), c, IO{}); !errors.As(err, &p) || b.d.ran != 0 {
		t.Errorf("%v, ran %d times", err, b.d.ran)
	}
	// No question is put that no person could answer.
	b = newAskBench(t, asksProg)
	res, err := b.Do(t.Context(), c, IO{})
	b.wantDenied(t, "a token of nowhere", res, err, "not known")
	c.Approval = ""
	res, err = b.Do(t.Context(), c, IO{})
	b.wantDenied(t, "nobody enrolled", res, err, "no approver can be asked")
}

// Input is read before the question is put, and all of it.
func TestInputIsAskedAbout(t *testing.T) {
	b := newAskBench(t, asksProg)
	b.d.prog = func(_ context.Context, _ *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		buf := make([]byte, 100)
		n, _ := x.Stdin.Read(buf)
		if string(buf[:n]) != "the input" {
			t.Errorf("the program reads %q", buf[:n])
		}
		return exited(0), nil
	}
	res, err := b.Do(t.Context(), asked(t, func(c *Call) {
		c.Ask = person(func(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			if !strings.Contains(r.View.String(), "standard input:\n  │ the input\n") {
				t.Errorf("shown:\n%s", r.View.String())
			}
			return says(true)(ctx, r)
		})
	}), IO{Stdin: strings.NewReader("the input")})
	if err != nil || b.d.ran != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = b.Do(t.Context(), asked(t, func(c *Call) { c.Ask = says(true) }), IO{Stdin: strings.NewReader(strings.Repeat("x", maxInput+1))})
	if !errors.Is(err, sandbox.ErrInvalid) || b.d.ran != 1 {
		t.Errorf("too much input: %v", err)
	}
}

// A call whose answer timeout ends is told what it waits for, and the question stands: a
// yes that comes later is for the same call, once.
func TestAnswerTimeout(t *testing.T) {
	b := newAskBench(t, asksProg)
	who := b.enroll(t)
	elsewhere := person(func(context.Context, *approval.Request) (approval.Who, question.Answer, error) {
		return approval.Who{}, question.Answer{}, question.ErrElsewhere
	})
	for name, ask := range map[string]question.Asker{"nobody here": nil, "somebody who answers elsewhere": elsewhere} {
		c := asked(t, func(c *Call) { c.Ask, c.AnswerTimeout = ask, time.Millisecond })
		var p *question.Pending
		if res, err := b.Do(t.Context(), c, IO{}); !errors.As(err, &p) || res != nil || b.d.ran != 0 {
			t.Fatalf("%s: %+v, %v, ran %d times", name, res, err, b.d.ran)
		}
		if r, err := b.store.Get(t.Context(), p.Request.ID); err != nil || r.State != approval.Pending {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		if _, err := b.approvals.Answer(t.Context(), who, p.Request.ID, question.Answer{Yes: true, Digest: p.Request.Digest}); err != nil {
			t.Fatal(err)
		}
		again := *c
		again.Approval = p.Token
		if res, err := b.Do(t.Context(), &again, IO{}); err != nil || res.Status != sandbox.StatusSuccess || b.d.ran != 1 {
			t.Errorf("%s: %+v, %v, ran %d times", name, res, err, b.d.ran)
		}
		b.d.ran = 0
	}
}

// Who is asked about a program sees what the rules about code say of it.
func TestApproverSeesFindings(t *testing.T) {
	b := newAskBench(t, "version: 1\ncode: {javascript: {deny_imports: [fs], on_finding: warn}}\nrisk: {high: [\"call.kind == 'run_code'\"], on_high: ask}\napprovals: {channels: [terminal]}\n")
	seen := ""
	c := asked(t, func(c *Call) {
		c.Argv, c.Source = nil, &Source{Language: "javascript", Code: []byte("let x = 1\nrequire('fs')\n")}
		c.Ask = person(func(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
			seen = r.View.String()
			return says(true)(ctx, r)
		})
	})
	if res, err := b.Do(t.Context(), c, IO{}); err != nil || res.Status != sandbox.StatusSuccess || len(res.Findings) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	if want := "rules about code say:\n  │ \"main.js\" line 2:1 imports fs by require (/w/p.yaml:2)\n"; !strings.Contains(seen, want) {
		t.Errorf("%q is not in\n%s", want, seen)
	}
}

// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

var ctx = context.Background()

// clock gives a time that moves on by one second with each look at it.
func clock() func() time.Time {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return func() time.Time { at = at.Add(time.Second); return at }
}

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(ctx, Options{Dir: dir, Now: clock()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func intent(name string) Intent {
	return Intent{Actor: "uid:1000", Kind: "run", Sandbox: "sbx_" + name, Argv: []string{"python3", "-c", name}, Code: []byte("print(" + name + ")"),
		Env: []string{"MODE=hunter2", "LANG"}, Secrets: []string{"API_KEY"}, PolicySHA: "ab", Isolation: "gvisor", Network: "none",
		Mounts: []Mount{{Name: "./data", Target: "/data", Access: "ro"}}, Limits: sandbox.DefaultLimits(), Labels: map[string]string{"task": name}}
}

func outcome(name string) Outcome {
	exit := 0
	return Outcome{Status: Allowed, Result: &sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: &exit, WallMS: 12,
		Stdout: []byte("out of " + name), Files: []sandbox.File{{Path: "out/a", SavedAs: "a", Size: 1}},
		Posture: sandbox.Posture{Isolation: "gvisor", Network: "none", Limits: map[sandbox.LimitName]sandbox.Enforcement{"wall": "enforced"}}}}
}

// call records one call that ran.
func call(t testing.TB, l *Log, name string) string {
	t.Helper()
	e, err := l.Begin(ctx, intent(name))
	must(t, err)
	must(t, e.End(ctx, outcome(name)))
	return e.ID
}

// verify opens the record as `audit verify` does.
func verify(t testing.TB, dir string, kept ...Checkpoint) Report {
	t.Helper()
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return Report{Findings: []Finding{{Kind: "open", Problem: err.Error()}}}
	}
	defer l.Close()
	rep, err := l.Verify(ctx, kept...)
	must(t, err)
	return rep
}

func wantOK(t testing.TB, rep Report) {
	t.Helper()
	if !rep.OK() {
		t.Errorf("findings: %v", rep.Findings)
	}
}

func list(t testing.TB, l *Log, f Filter) (ids []string, all []Record) {
	t.Helper()
	for r, err := range l.Query(ctx, f) {
		must(t, err)
		ids, all = append(ids, r.ID), append(all, r)
	}
	return ids, all
}

func TestBeginEndShow(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	e, err := l.Begin(ctx, intent("a"))
	must(t, err)
	if _, all := list(t, l, Filter{}); len(all) != 1 || all[0].Status != Unfinished || all[0].ID != e.ID {
		t.Fatalf("before End: %+v", all)
	}
	must(t, e.End(ctx, outcome("a")))
	if err := e.End(ctx, outcome("a")); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("a second End = %v, want ErrConflict", err)
	}
	d, err := l.Show(ctx, e.ID[:12])
	must(t, err)
	if diff := cmp.Diff([]string{"python3", "-c", "a"}, d.Command); diff != "" || string(d.Code) != "print(a)" || string(d.Stdout) != "out of a" || d.Status != Allowed {
		t.Errorf("Show: %s %+v", diff, d)
	}
	want := &Call{Actor: "uid:1000", Kind: "run", Sandbox: "sbx_a", Argv: Captured([]byte("python3\x00-c\x00a")).content(), Code: Captured([]byte("print(a)")).content(),
		Env: []string{"MODE", "LANG"}, Secrets: []string{"API_KEY"}, PolicySHA: "ab", Isolation: "gvisor", Network: "none",
		Mounts: []Mount{{Name: "./data", Target: "/data", Access: "ro"}}, Labels: map[string]string{"task": "a"},
		Limits: map[string]string{"wall": "30s", "cpus": "1", "memory": "268435456", "processes": "128", "open_files": "1024",
			"disk": "536870912", "inodes": "131072", "tmp": "104857600", "output": "1048576"}}
	if diff := cmp.Diff(want, d.Call); diff != "" {
		t.Errorf("Call (-want +got):\n%s", diff)
	}
	result := *outcome("a").Result
	result.Stdout = nil
	if diff := cmp.Diff(&result, d.Ending.Result); diff != "" {
		t.Errorf("Result (-want +got):\n%s", diff)
	}
	for _, id := range []string{"", "aud_zzz", "' OR 1=1 --", "%"} {
		if _, err := l.Show(ctx, id); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("Show(%q) = %v, want ErrNotFound", id, err)
		}
	}
	call(t, l, "b")
	if _, err := l.Show(ctx, "aud_"); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Show of what two begin with = %v, want ErrInvalid", err)
	}
	wantOK(t, verify(t, dir))
	for name, mode := range map[string]os.FileMode{keyFile: 0o600, dbFile: 0o600, headFile: 0o600, dbFile + "-wal": 0o600} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, fi, err, mode)
		}
	}
}

// TestNoValues looks for values of the environment in every file.
func TestNoValues(t *testing.T) {
	dir := t.TempDir()
	call(t, open(t, dir), "a")
	if where := grep(t, dir, "hunter2"); where != "" {
		t.Errorf("the value is in %s", where)
	}
	if grep(t, dir, "MODE") == "" {
		t.Error("the name is nowhere, so this test looks in the wrong place")
	}
}

// grep names a file of the log that holds text.
func grep(t *testing.T, dir, text string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		must(t, err)
		if bytes.Contains(b, []byte(text)) {
			return f.Name()
		}
	}
	return ""
}

func TestRefuse(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	must(t, l.Refuse(ctx, intent("a"), Outcome{Status: Refused, Result: &sandbox.Result{Status: sandbox.StatusDenied, Rule: "policy.yaml:12", Reason: "no"}}))
	must(t, l.Refuse(ctx, intent("b"), Outcome{Status: Failed, Error: "the engine is dead"}))
	for _, s := range []Status{Allowed, "", "fine"} {
		if err := l.Refuse(ctx, intent("c"), Outcome{Status: s}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("Refuse with status %q = %v, want ErrInvalid", s, err)
		}
	}
	_, all := list(t, l, Filter{OldestFirst: true})
	if len(all) != 2 || all[0].Status != Refused || all[0].Ending.Result.Rule != "policy.yaml:12" || all[1].Status != Failed || all[1].Ending.Error != "the engine is dead" {
		t.Errorf("%+v", all)
	}
	wantOK(t, verify(t, dir))
}

func TestQueryFilters(t *testing.T) {
	l := open(t, t.TempDir())
	a := call(t, l, "a")
	in := intent("b")
	in.Actor, in.Kind = "key:ci", "tool"
	must(t, l.Refuse(ctx, in, Outcome{Status: Refused}))
	c := call(t, l, "c")
	ids, all := list(t, l, Filter{})
	if len(ids) != 3 || ids[0] != c || ids[2] != a {
		t.Fatalf("newest first: %v", ids)
	}
	b := ids[1]
	for _, tt := range []struct {
		name string
		f    Filter
		want []string
	}{
		{"oldest first", Filter{OldestFirst: true}, []string{a, b, c}},
		{"limit", Filter{Limit: 2}, []string{c, b}},
		{"actor", Filter{Actor: "key:ci"}, []string{b}},
		{"kind", Filter{Kind: "run"}, []string{c, a}},
		{"sandbox", Filter{Sandbox: "sbx_a"}, []string{a}},
		{"status", Filter{Status: Refused}, []string{b}},
		{"limit counts what matches", Filter{Status: Allowed, Limit: 1}, []string{c}},
		{"since includes", Filter{Since: all[1].Time}, []string{c, b}},
		{"until excludes", Filter{Until: all[1].Time}, []string{a}},
		{"an actor that is SQL", Filter{Actor: "' OR 1=1 --"}, nil},
	} {
		if got, _ := list(t, l, tt.f); !cmp.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	for range l.Query(ctx, Filter{}) {
		break // a sequence that is left early gives its connection back
	}
}

// TestHostileText records what code in a sandbox may choose.
func TestHostileText(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	in := intent("a")
	in.Argv = []string{"=HYPERLINK(\"x\")", "\xff\xfe", "\x1b]0;title\x07", "'; DROP TABLE records; --", strings.Repeat("x", 10<<20)}
	in.Labels = map[string]string{"\xff": "\xff\x00", "l": strings.Repeat("y", 1<<20)}
	e, err := l.Begin(ctx, in)
	must(t, err)
	out := outcome("a")
	out.Stdout = NewCapture()
	for range 100 {
		io.WriteString(out.Stdout, strings.Repeat("z", 10_000))
	}
	out.Result.Files = nil
	for i := range 3 * maxFiles {
		out.Result.Files = append(out.Result.Files, sandbox.File{Path: fmt.Sprint(i, strings.Repeat("\xff", 4000)), SavedAs: strings.Repeat("s", 4000)})
	}
	out.Result.Changes = &sandbox.Changes{ID: "c"}
	for range 3 * maxItems {
		out.Result.Changes.Applied = append(out.Result.Changes.Applied, strings.Repeat("\xff", 4000))
	}
	for range 3 * maxUncollected {
		u := strings.Repeat("\xff", 2*maxText)
		out.Result.Uncollected = append(out.Result.Uncollected, sandbox.Uncollected{Pattern: u, Reason: u, Hint: u})
	}
	must(t, e.End(ctx, out))
	d, err := l.Show(ctx, e.ID)
	must(t, err)
	if got := d.Ending.Result.Uncollected; len(got) != maxUncollected+1 || got[maxUncollected].Reason != "… (128 more)" {
		t.Errorf("%d wishes that failed are listed", len(got))
	}
	if d.Call.Argv.Size < 10<<20 || d.Call.Argv.Kept == "" || len(d.Stdout) != KeepBytes || d.Ending.Stdout.Size != 1_000_000 {
		t.Errorf("content: %+v %+v, %d bytes of stdout", d.Call.Argv, d.Ending.Stdout, len(d.Stdout))
	}
	if c := d.Ending.Result.Changes; c == nil || len(c.Applied) > maxItems+1 {
		t.Errorf("%+v", c)
	}
	if d.Ending.FilesOmitted+len(d.Ending.Result.Files) != 3*maxFiles {
		t.Errorf("%d files listed, %d omitted", len(d.Ending.Result.Files), d.Ending.FilesOmitted)
	}
	if want := `\xff`; d.Call.Labels[want] != want+"\x00" || len(d.Call.Labels["l"]) > maxText+64 {
		t.Errorf("labels: %q", d.Call.Labels[want])
	}
	wantOK(t, verify(t, dir))

	var b bytes.Buffer
	must(t, l.Export(ctx, &b, CSV, Filter{}))
	rows, err := csv.NewReader(&b).ReadAll()
	must(t, err)
	command := rows[1][10]
	if len(rows) != 2 || !strings.HasPrefix(command, "'=HYPERLINK") || strings.ContainsAny(command, "\x1b\x07") {
		t.Errorf("CSV command: %.80q", command)
	}

	in.Labels = map[string]string{}
	for i := range 2000 {
		in.Labels[fmt.Sprint(i)] = strings.Repeat("y", maxText)
	}
	if _, err := l.Begin(ctx, in); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
		t.Errorf("Begin with 8 MB of labels = %v, want ErrInvalid", err)
	}
}

func TestExportJSON(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	a, b := call(t, l, "a"), call(t, l, "b")
	var buf bytes.Buffer
	must(t, l.Export(ctx, &buf, JSONL, Filter{}))
	d := json.NewDecoder(&buf)
	for _, id := range []string{a, b} {
		var r Record
		must(t, d.Decode(&r))
		if r.ID != id || r.Digest == "" || r.EndDigest == "" || r.Status != Allowed || r.Command[2] != strings.TrimPrefix(r.Call.Sandbox, "sbx_") {
			t.Errorf("%+v", r)
		}
	}
	var last struct{ Checkpoint Checkpoint }
	must(t, d.Decode(&last))
	if last.Checkpoint.Count != 5 {
		t.Errorf("checkpoint: %+v", last)
	}
	call(t, l, "c")
	wantOK(t, verify(t, dir, last.Checkpoint)) // it holds for a longer chain
	if err := l.Export(ctx, &buf, "xml", Filter{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Export as xml = %v, want ErrInvalid", err)
	}
}

func TestRedact(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	id := call(t, l, "a")
	d, err := l.Show(ctx, id)
	must(t, err)
	digest := d.Ending.Stdout.SHA256
	must(t, l.Redact(ctx, digest, "a password"))
	if where := grep(t, dir, "out of a"); where != "" {
		t.Errorf("it is still in %s", where)
	}
	if d, err = l.Show(ctx, id); err != nil || d.Stdout != nil || string(d.Code) != "print(a)" {
		t.Errorf("after: %+v, %v", d, err)
	}
	call(t, l, "a") // prints the same again
	if where := grep(t, dir, "out of a"); where != "" {
		t.Errorf("it came back in %s", where)
	}
	rep := verify(t, dir)
	wantOK(t, rep)
	if rep.Redacted != 1 {
		t.Errorf("Redacted = %d", rep.Redacted)
	}
	for digest, want := range map[string]error{digest: sandbox.ErrConflict, strings.Repeat("0", 64): sandbox.ErrNotFound, "xyz": sandbox.ErrInvalid} {
		if err := l.Redact(ctx, digest, ""); !errors.Is(err, want) {
			t.Errorf("Redact(%s) = %v, want %v", digest, err, want)
		}
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	old := call(t, l, "old")
	shared := call(t, l, "shared")
	_, all := list(t, l, Filter{Limit: 1})
	young := call(t, l, "shared") // the same content again
	n, err := l.Prune(ctx, all[0].Ended.Add(1))
	if err != nil || n != 4 {
		t.Fatalf("Prune = %d, %v; want 4", n, err)
	}
	for _, text := range []string{"print(old)", "out of old", "sbx_old"} {
		if where := grep(t, dir, text); where != "" {
			t.Errorf("%q is still in %s", text, where)
		}
	}
	ids, all := list(t, l, Filter{OldestFirst: true})
	if !cmp.Equal(ids, []string{old, shared, young}) || all[0].Status != Pruned || all[0].Call != nil || all[2].Command == nil {
		t.Errorf("after: %v %+v", ids, all)
	}
	rep := verify(t, dir)
	wantOK(t, rep)
	if rep.Pruned != 4 {
		t.Errorf("Pruned = %d", rep.Pruned)
	}
	if n, err := l.Prune(ctx, all[1].Time); n != 0 || err != nil {
		t.Errorf("pruning again = %d, %v", n, err)
	}
	call(t, l, "c")
	wantOK(t, verify(t, dir))
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(ctx, Options{Dir: dir, ReadOnly: true}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("nothing there: %v, want ErrNotFound", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("it made %v", left)
	}
	call(t, open(t, dir), "a")
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer l.Close()
	if _, err := l.Begin(ctx, intent("b")); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Begin = %v, want ErrInvalid", err)
	}
	if ids, _ := list(t, l, Filter{}); len(ids) != 1 {
		t.Errorf("Query = %v", ids)
	}
}

// TestEndAfterCancel records an outcome although its call was cancelled.
func TestEndAfterCancel(t *testing.T) {
	l := open(t, t.TempDir())
	cancelled, cancel := context.WithCancel(ctx)
	e, err := l.Begin(cancelled, intent("a"))
	must(t, err)
	cancel()
	must(t, e.End(cancelled, outcome("a")))
	if _, err := l.Begin(cancelled, intent("b")); !errors.Is(err, context.Canceled) {
		t.Errorf("Begin after cancel = %v", err)
	}
}

// TestManyGoroutines writes and reads one Log from many goroutines. A Verify
// in the midst of it sees a whole chain.
func TestManyGoroutines(t *testing.T) {
	l, err := Open(ctx, Options{Dir: t.TempDir()})
	must(t, err)
	defer l.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 5 {
				e, err := l.Begin(ctx, intent(fmt.Sprint(i, j)))
				if err == nil {
					err = e.End(ctx, outcome(fmt.Sprint(i, j)))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			rep, err := l.Verify(ctx)
			if err != nil || !rep.OK() {
				t.Errorf("in the midst: %v, %v", rep.Findings, err)
			}
			for r, err := range l.Query(ctx, Filter{}) {
				if err != nil || r.Command == nil {
					t.Errorf("in the midst: %+v, %v", r, err)
				}
			}
		})
	}
	all.Wait()
	if ids, _ := list(t, l, Filter{Status: Allowed}); len(ids) != 40 {
		t.Errorf("%d calls, want 40", len(ids))
	}
}

// raw opens the database as a tamperer would.
func raw(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, dbFile)+"?_pragma=ignore_check_constraints(1)")
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestPaddedRefusal: what is too long to be recorded is refused before it runs, and its
// refusal is recorded without what is too long.
func TestPaddedRefusal(t *testing.T) {
	l, err := Open(ctx, Options{Dir: t.TempDir()})
	must(t, err)
	defer l.Close()
	in := intent("padded")
	for i := range 400 {
		in.Env = append(in.Env, fmt.Sprint(i)+strings.Repeat("<", 4000))
		in.Mounts = append(in.Mounts, Mount{Name: in.Env[i]})
	}
	if _, err := l.Begin(ctx, in); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("it may begin: %v", err)
	}
	must(t, l.Refuse(ctx, in, Outcome{Status: Refused, Error: "no"}))
	_, all := list(t, l, Filter{})
	if len(all) != 1 || all[0].Status != Refused || all[0].Call.Actor != in.Actor || len(all[0].Command) == 0 ||
		!strings.Contains(all[0].Call.Env[0], "left out") || !strings.Contains(all[0].Call.Mounts[0].Name, "left out") {
		t.Errorf("%d are recorded: %+v", len(all), all[0].Call)
	}
}

// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// each walks the joined errors of err.
func each(err error, yield func(error)) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		if _, leaf := err.(*sandbox.Error); !leaf {
			for _, e := range joined.Unwrap() {
				each(e, yield)
			}
			return
		}
	}
	if err != nil {
		yield(err)
	}
}

// TestParseFaults runs testdata/*.txtar: cases of "input ---- expected", each
// under a line "== name". What is expected is "ok", or one line for each fault
// and its hint. -update rewrites them.
func TestParseFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		head, cases, _ := strings.Cut(string(golden), "\n== ")
		out.WriteString(head + "\n")
		for _, c := range strings.Split(cases, "\n== ") {
			name, body, _ := strings.Cut(c, "\n")
			input, want, ok := strings.Cut(strings.TrimSuffix(body, "\n")+"\n", "----\n")
			if !ok {
				t.Fatalf("%s: case %q has no ----", file, name)
			}
			got := faults(input)
			if !*update {
				t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
					if diff := cmp.Diff(strings.TrimSpace(want), got); diff != "" {
						t.Errorf("input:\n%s\n(-want +got)\n%s", input, diff)
					}
				})
			}
			out.WriteString("== " + name + "\n" + input + "----\n" + got + "\n")
		}
		if *update {
			if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// faults parses input, with what editors do not show written out as \xNN or
// \uNNNN, and writes what it got.
func faults(input string) string {
	input = regexp.MustCompile(`\\(x[0-9a-f]{2}|u[0-9a-f]{4})`).ReplaceAllStringFunc(input, func(s string) string {
		plain, err := strconv.Unquote(`"` + s + `"`)
		if err != nil {
			return s
		}
		return plain
	})
	_, err := Parse("p.yaml", []byte(input))
	if err == nil {
		return "ok"
	}
	var lines []string
	each(err, func(err error) { lines = append(lines, err.Error()+" ["+sandbox.Hint(err)+"]") })
	return strings.Join(lines, "\n")
}

// TestParseAll reads a file that says everything there is to say.
func TestParseAll(t *testing.T) {
	src, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse("/etc/x/all.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range limits() {
		if !f.Limits.Explicit[l.name] || l.get(&f.Limits) == 0 || !f.limitsAt[l.name].Said() {
			t.Errorf("limit %s was not read", l.name)
		}
	}
	got := []any{
		f.Isolation.V, f.User.V, f.BestEffort.V, f.Limits.OutputKill, len(f.Watch), f.Watch[0].When, f.Watch[0].From,
		f.hostPath(f.Files.Workspace.Source), f.Files.Workspace.Access.String(), f.hostPath(f.Files.Mounts[0].Source),
		f.Files.Mounts[0].Target, f.rule(f.Files.Mounts[1].At), texts(f.Files.Writable.V), texts(f.Files.Deny), texts(f.Files.Collect),
		texts(f.Files.Toolchains), f.Files.Rootfs.V, texts(f.Env.Pass), f.Env.Set["MODE"].V, f.position(f.Env.Set["MODE"].At),
		f.Changes.Keep.V, texts(f.Changes.Apply.V), texts(f.Changes.Hold), f.Changes.MaxFiles.V,
	}
	want := []any{
		"gvisor", "root", true, true, 2, "cpu_percent > 80", "/etc/x/all.yaml:22",
		"/etc/x", "cow", "/etc/x/data",
		"/data", "/etc/x/all.yaml:29", []string{"/home/user", "/tmp"}, []string{"**/.env"}, []string{"out/**"},
		[]string{"/opt/go"}, "./tree", []string{"LANG"}, "test", "/etc/x/all.yaml:38:15",
		"workspace", []string{"src/**"}, []string{"src/build/**"}, 200,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/*")
	for _, s := range seeds {
		src, err := os.ReadFile(s)
		if err != nil {
			continue
		}
		for _, c := range strings.Split(string(src), "\n== ") {
			_, body, _ := strings.Cut(c, "\n")
			input, _, _ := strings.Cut(body, "----\n")
			f.Add([]byte(input))
		}
	}
	position := regexp.MustCompile(`^f\.yaml:[1-9][0-9]*:[1-9][0-9]*$`)
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := Parse("f.yaml", src)
		if (file == nil) == (err == nil) {
			t.Fatalf("file %v and error %v", file, err)
		}
		n := 0
		each(err, func(err error) {
			var e *sandbox.Error
			if !errors.As(err, &e) || !position.MatchString(e.Op) || e.Problem == "" {
				t.Errorf("error without a place: %#v", err)
			}
			if strings.HasPrefix(e.Problem, "reading it failed") {
				t.Errorf("panic inside: %v", e)
			}
			if n++; n > maxFaults+1 {
				t.Errorf("%d faults", n)
			}
		})
		if file != nil {
			file.Dir = "/d"
			if _, err := New(Options{File: file}); err != nil {
				t.Errorf("a well-formed file makes no policy: %v", err)
			}
		}
	})
}

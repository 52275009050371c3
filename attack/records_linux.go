// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/audit"
)

// records goes at the record: what is written into it, past it, and to its files.
func (s *suite) records(ctx context.Context) finding {
	d, err := s.desk(ctx, "P12", marker("^P12-[a-z]+$", "")+`  - name: say
    description: Says something.
    params: {type: object, additionalProperties: false, required: [text], properties: {text: {type: string}, key: {type: string}}}
    command: [echo, --, "{text}"]
    redact: [key]
`)
	if err != nil {
		return unable(err)
	}
	defer d.Close()
	if f := d.works("P12-control", d.tool(ctx, "mark", arguments("name", "P12-control"))); f.verdict != Pass {
		return f
	}
	for _, attack := range []func(context.Context) finding{d.injected, d.redacted, d.swollen, d.unwritable, d.tampered} {
		if f := attack(ctx); f.verdict != Pass {
			return f
		}
	}
	return pass()
}

// log opens the record as a reader that trusts nothing of the Office.
func (d *desk) log(ctx context.Context) (*audit.Log, error) {
	return audit.Open(ctx, audit.Options{Dir: d.state, ReadOnly: true})
}

// said are the texts that calls of the tool say were recorded with, and whether
// the record is whole.
func (d *desk) said(ctx context.Context) (texts []string, whole bool, err error) {
	log, err := d.log(ctx)
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	for r, err := range log.Query(ctx, audit.Filter{}) {
		if err != nil {
			return nil, false, err
		}
		if r.Call == nil || r.Call.Tool != "say" {
			continue
		}
		shown, err := log.Show(ctx, r.ID)
		if err != nil {
			return nil, false, err
		}
		var p struct{ Text string }
		if json.Unmarshal(shown.Params, &p) == nil {
			texts = append(texts, p.Text)
		}
	}
	rep, err := log.Verify(ctx)
	return texts, rep.OK(), err
}

// injected says what would be more than a text to a careless writer.
func (d *desk) injected(ctx context.Context) finding {
	want := []string{
		"'); DELETE FROM records; --", `"}{"status":"allowed","actor":"root"}`, "x\n{\"seq\":1}\n", "x\r\nallowed root", "\x1b[2K\x1b]0;x\x07", "=cmd|' /C calc'!A0", "`id`$(id)", "</script><script>alert(1)</script>", "%s%n%x",
	}
	for _, text := range want {
		_ = d.tool(ctx, "say", arguments("text", text))
	}
	texts, whole, err := d.said(ctx)
	switch {
	case err != nil:
		return unable(err)
	case !whole:
		return breach("the record is damaged by what a call said")
	}
	for _, text := range want {
		// Some hold what no argument may; those are recorded as refused, without it.
		if !slices.Contains(texts, text) && !strings.ContainsAny(text, "\x1b\x07") {
			return breach("a call is not recorded as it was: %q", text)
		}
	}
	return pass()
}

// redacted looks for an argument that is to be in no record, in all files of the
// state directory, and for one that is.
func (d *desk) redacted(ctx context.Context) finding {
	seen := "seen-" + d.suite.random
	err := d.tool(ctx, "say", arguments("text", seen, "key", d.suite.token("P12")))
	if holds(ctx, d.state, seen) == "" {
		if err == nil {
			err = errors.New("what a call says is in no file of the record")
		}
		return unable(err)
	}
	if file := holds(ctx, d.state, d.suite.token("P12")); file != "" {
		return breach("an argument that is to be in no record lies in %s", file)
	}
	return pass()
}

// swollen hands over more than a record should take.
func (d *desk) swollen(ctx context.Context) finding {
	before := size(d.state)
	_ = d.tool(ctx, "say", arguments("text", strings.Repeat("x", 10<<20)))
	if grown := size(d.state) - before; grown > 4<<20 {
		return breach("a call of 10 MiB took %d MiB of the record", grown>>20)
	}
	return pass()
}

// unwritable keeps the record from being written to: nothing may run then.
func (d *desk) unwritable(ctx context.Context) finding {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(d.state, "audit.db")+"?_txlock=exclusive&_pragma=busy_timeout(10000)")
	if err != nil {
		return unable(err)
	}
	defer db.Close()
	hold, err := db.BeginTx(ctx, nil)
	if err != nil {
		return unable(err)
	}
	_ = d.tool(ctx, "mark", arguments("name", "P12-unrecorded"))
	ran := d.made("P12-unrecorded")
	if err := hold.Rollback(); err != nil {
		return unable(err)
	}
	if ran {
		return breach("a call ran that could not be recorded")
	}
	return d.works("P12-again", d.tool(ctx, "mark", arguments("name", "P12-again")))
}

// tampered changes copies of the files.
func (d *desk) tampered(ctx context.Context) finding {
	if err := d.Close(); err != nil {
		return unable(err)
	}
	for what, statement := range map[string]string{
		"a record was changed":            "UPDATE records SET at = at + 1 WHERE seq = 3",
		"a record was removed":            "DELETE FROM records WHERE seq = 3",
		"the last records were cut off":   "DELETE FROM records WHERE seq > 3",
		"a record's text was taken out":   "UPDATE records SET body = NULL WHERE seq = 3",
		"a record's text was replaced":    "UPDATE records SET body = (SELECT body FROM records WHERE seq = 2) WHERE seq = 3",
		"" /* the control: nothing is */ : "SELECT 1",
	} {
		whole, err := d.verify(ctx, statement)
		switch {
		case err != nil:
			return unable(err)
		case whole && what != "":
			return breach("%s, and it is not found", what)
		case !whole && what == "":
			return finding{verdict: Unclear, reason: "a copy of the record is taken for damaged"}
		}
	}
	return pass()
}

// verify copies the record, changes the copy and has it verified.
func (d *desk) verify(ctx context.Context, statement string) (whole bool, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(d.state), "copy-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	files, err := filepath.Glob(filepath.Join(d.state, "audit.*"))
	if err != nil {
		return false, err
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600)
		}
		if err != nil {
			return false, err
		}
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "audit.db"))
	if err != nil {
		return false, err
	}
	_, err = db.ExecContext(ctx, statement)
	if err := errors.Join(err, db.Close()); err != nil {
		return false, err
	}
	log, err := audit.Open(ctx, audit.Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return false, nil // it says so loudly enough
	}
	defer log.Close()
	rep, err := log.Verify(ctx)
	return rep.OK(), err
}

// size is what the files of a directory take.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// arguments are those of a tool: names and values by turns.
func arguments(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, _ := json.Marshal(m)
	return string(text)
}

// marker declares a tool that makes a file whose name fits a pattern, with more
// in its entry.
func marker(pattern, more string) string {
	return `tools:
  - name: mark
    description: Makes a file.
    params: {type: object, additionalProperties: false, required: [name], properties: {name: {type: string, pattern: "` + pattern + `"}, n: {type: integer, minimum: 0, maximum: 9}}}
    command: [touch, --, "{name}"]
` + more
}

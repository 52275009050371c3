// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
)

// The formats of Export.
const (
	JSONL = "jsonl" // one Record each line, and last {"checkpoint": …}
	CSV   = "csv"   // one line for each call, for people
	OCSF  = "ocsf"  // one event of the Open Cybersecurity Schema Framework each line
)

// Export writes the calls and connections that a filter lets through, oldest first,
// without the content of code and streams. An unknown format is ErrInvalid.
func (l *Log) Export(ctx context.Context, w io.Writer, format string, f Filter) error {
	f.OldestFirst = true
	switch format {
	case JSONL:
		return l.exportJSON(ctx, w, f)
	case CSV:
		return l.exportCSV(ctx, w, f)
	case OCSF:
		return l.exportOCSF(ctx, w, f)
	}
	return &sandbox.Error{Op: "audit export", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf("there is no format %q", clean(format, 64)), Hint: "use jsonl, csv or ocsf"}
}

func (l *Log) exportJSON(ctx context.Context, w io.Writer, f Filter) error {
	behind := l.behind
	if l.r == nil {
		return behind
	}
	// Before the records, so that all it covers is among them.
	c, err := l.storedCheckpoint(ctx)
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	for r, err := range l.query(ctx, f) {
		if err != nil {
			return err
		}
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	if behind != nil {
		return behind
	}
	return e.Encode(map[string]Checkpoint{"checkpoint": c})
}

var csvHeader = []string{"seq", "id", "time", "ended", "status", "result", "actor", "kind", "sandbox", "isolation", "command",
	"exit_code", "signal", "resource", "rule", "reason", "wall_ms", "policy", "policy_sha256", "digest", "end_digest"}

func (l *Log) exportCSV(ctx context.Context, w io.Writer, f Filter) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvHeader); err != nil {
		return err
	}
	for r, err := range l.Query(ctx, f) {
		if err != nil {
			out.Flush()
			return err
		}
		if err := out.Write(csvRow(&r)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func csvRow(r *Record) []string {
	var c Call
	var e Ending
	var res sandbox.Result
	if r.Call != nil {
		c = *r.Call
	}
	if r.Ending != nil {
		e = *r.Ending
	}
	ended, exit, wall, reason := "", "", "", e.Error
	if r.Ended != nil {
		ended = r.Ended.Format(time.RFC3339Nano)
	}
	if e.Result != nil {
		res = *e.Result
		wall = strconv.FormatInt(res.WallMS, 10)
		if reason == "" {
			reason = res.Reason
		}
		if res.ExitCode != nil {
			exit = strconv.Itoa(*res.ExitCode)
		}
	}
	command := strings.Join(r.Command, " ")
	if n := c.Connection; n != nil {
		command, res.Rule, reason = net.JoinHostPort(cmp.Or(n.Host, n.Address), strconv.Itoa(n.Port)), n.Rule, n.Reason
		wall = strconv.FormatInt(n.DurationMS, 10)
	}
	row := []string{strconv.FormatInt(r.Seq, 10), r.ID, r.Time.Format(time.RFC3339Nano), ended, string(r.Status), string(res.Status),
		c.Actor, c.Kind, c.Sandbox, c.Isolation, command, exit, res.Signal, string(res.Resource), res.Rule, reason,
		wall, c.Policy, c.PolicySHA, r.Digest, r.EndDigest}
	for i := range row {
		row[i] = cell(row[i])
	}
	return row
}

// blank is what a spreadsheet may take off, or what cannot be seen.
func blank(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }

// cell makes text from a sandbox harmless for a spreadsheet, which would
// compute what begins with one of =+-@, in their full width too, also behind blanks,
// and for a terminal.
func cell(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) { // controls, and what turns text round
			return ' '
		}
		return r
	}, clean(s, maxText))
	if first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s, blank)); strings.ContainsRune("=+-@＝＋－＠", first) {
		if _, err := strconv.Atoi(s); err != nil { // a number stays one
			s = "'" + s
		}
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// Summary is a phrase: "52 held, 1 breached, 2 not applicable".
func (r *Report) Summary() string {
	s := fmt.Sprintf("%d held, %d breached", r.Count(Pass), r.Count(Breach))
	if n := r.Count(NotApplicable); n > 0 {
		s += fmt.Sprintf(", %d not applicable", n)
	}
	if n := r.Count(Unclear); n > 0 {
		s += fmt.Sprintf(", %d unclear", n)
	}
	return s
}

// Object is the report for machines.
func (r *Report) Object() map[string]any {
	return map[string]any{
		"isolation": r.Isolation, "began": r.Began.UTC().Format(time.RFC3339), "took_ms": r.TookMS, "cases": r.Cases,
		"passed": r.Count(Pass), "breached": r.Count(Breach), "not_applicable": r.Count(NotApplicable), "unclear": r.Count(Unclear),
	}
}

// Page is the report as a page that needs nothing else, and runs nothing: what
// it shows may hold names that were chosen inside.
func Page(r *Report) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>caisson attack: %[1]s</title><style>
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%% }
td, th { text-align: left; vertical-align: top; padding: .3rem .6rem; border-top: 1px solid #8884 }
td:first-child { font-family: ui-monospace, monospace }
.pass { color: #197a3b } .breach { color: #fff; background: #b3261e } .unclear { color: #a15c00 } .none { color: #777 }
@media (prefers-color-scheme: dark) { .pass { color: #6fd08c } .unclear { color: #f0b35b } }
small { color: #777 }
</style></head><body>
<h1>caisson attack: %[1]s</h1>
<p>%[2]s, on %[3]s, in %[4]s. Each row is an attack from inside a sandbox; pass: it did not work.</p>
<table><thead><tr><th>Case</th><th>Verdict</th><th>Attack</th></tr></thead><tbody>
`, html.EscapeString(r.Isolation), html.EscapeString(r.Summary()), r.Began.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(100*time.Millisecond))
	for _, f := range r.Cases {
		class := map[Verdict]string{Pass: "pass", Breach: "breach", Unclear: "unclear", NotApplicable: "none"}[f.Verdict]
		fmt.Fprintf(&b, `<tr><td>%s</td><td class="%s">%s</td><td>%s`, html.EscapeString(f.ID), class, html.EscapeString(string(f.Verdict)), html.EscapeString(f.Title))
		for _, text := range []string{f.Reason, f.Mend} {
			if text != "" {
				fmt.Fprintf(&b, "<br><small>%s</small>", html.EscapeString(strings.ToValidUTF8(text, "\uFFFD")))
			}
		}
		b.WriteString("</td></tr>\n")
	}
	b.WriteString("</tbody></table></body></html>\n")
	return []byte(b.String())
}

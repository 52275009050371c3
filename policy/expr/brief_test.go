// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tool/params"
)

// bothOf are a condition as it is evaluated and with everything counted, and whether
// these differ.
func bothOf(t *testing.T, condition string, p *Params) (as, counted *Expr, isBrief bool) {
	t.Helper()
	env, err := p.environment()
	if err != nil {
		t.Fatal(err)
	}
	read, issues := env.Compile(condition)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", condition, issues.Err())
	}
	program, err := programOf(env, read, false)
	if err != nil {
		t.Fatal(err)
	}
	if as, err = Compile(condition, p); err != nil {
		t.Fatal(err)
	}
	return as, &Expr{condition, program}, brief(read.NativeRep())
}

// TestBrief: what is not counted is of single values alone.
func TestBrief(t *testing.T) {
	p := ParamsOf([]byte(mail))
	for condition, want := range map[string]bool{
		`params.n != 10`: true, `!has(params.n) || params.n < 10`: true, `params.to == "a@b.com"`: true, `"x" < params.to`: true, `params.header.from == "x"`: true,
		`params.n * 2 + 1 > 7 - params.n % 3 && -params.n < 0`: true, `params.urgent ? params.n < 3 : params.size < 1.5`: true, `(params.urgent ? params.to : "x") == "y"`: true,
		`tool.name == "x" && !call.operator`: true, `true`: true, `params.labels.x == "y"`: true,
		`params.to == params.path`:                              false, // both may be long
		`params.to + "x" == "y"`:                                false,
		`params.to in ["x", "y"]`:                               false,
		`params.to.size() < 10`:                                 false,
		`params.to.startsWith("x")`:                             false,
		`email.domain(params.to) == "company.com"`:              false,
		`params.cc == ["x"]`:                                    false,
		`params.cc[0] == "x"`:                                   false,
		`params.cc.all(a, a == "x")`:                            false,
		`params.any == 3`:                                       false, // may be a list
		`bool(params.any.x)`:                                    false,
		`params.labels == {"x": "y"}`:                           false,
		`url(params.url).host == "x"`:                           false,
		`string(params.n) == "1"`:                               false,
		`(params.urgent ? params.labels : {"x": "y"}).x == "y"`: false,
	} {
		if _, _, got := bothOf(t, condition, p); got != want {
			t.Errorf("%s: brief is %t", condition, got)
		}
	}
}

// TestBriefIsFarFromTheBounds: with the longest arguments there can be, the longest such
// condition is none that is refused for its cost.
func TestBriefIsFarFromTheBounds(t *testing.T) {
	p := ParamsOf([]byte(mail))
	long := strings.Repeat("x", params.MaxText)
	for _, condition := range []string{
		strings.TrimSuffix(strings.Repeat(`params.to<"x"||`, maxText/15), "||"),
		strings.TrimSuffix(strings.Repeat(`params.n*params.n<0||`, maxText/21), "||"),
		`params.to == "` + strings.Repeat("x", maxText-20) + `"`,
		`"` + strings.Repeat("x", maxText/2-20) + `" == "` + strings.Repeat("x", maxText/2-20) + `"`,
	} {
		_, counted, isBrief := bothOf(t, condition, p)
		if !isBrief {
			t.Errorf("%.50s…: it is counted", condition)
		}
		env, _ := p.environment()
		read, _ := env.Compile(condition)
		program, err := programOf(env, read, false)
		if err != nil {
			t.Fatal(err)
		}
		_, details, err := program.Eval(Prepare(Input{Params: map[string]any{"to": long, "n": int64(1)}}).vars)
		if err != nil {
			t.Fatalf("%.50s…: %v", condition, err)
		}
		if cost := *details.ActualCost(); cost > maxCost/10 {
			t.Errorf("%.50s…: it costs %d steps", condition, cost)
		}
		if _, err := counted.Holds(Prepare(Input{Params: map[string]any{"to": long, "n": int64(1)}})); err != nil {
			t.Errorf("%.50s…: %v", condition, err)
		}
	}
}

// TestBriefAsCounted: conditions of any kind come to the same, counted or not, down to the
// words of what fails.
func TestBriefAsCounted(t *testing.T) {
	p := ParamsOf([]byte(mail))
	r := rand.New(rand.NewPCG(1, 2))
	m := conditions{r}
	uncounted, held, failed := 0, 0, 0
	for range 2000 {
		condition := m.truth(3)
		as, counted, isBrief := bothOf(t, condition, p)
		if isBrief {
			uncounted++
		}
		for range 4 {
			args := m.args()
			v, err := params.Read(args)
			if err != nil {
				t.Fatal(err)
			}
			in := Input{Tool: m.one("send_email", "x"), Params: p.Value(v), Actor: "key:ci", Operator: r.IntN(2) == 0}
			got, gotErr := as.Holds(Prepare(in))
			want, wantErr := counted.Holds(Prepare(in))
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("%s of %s: %t, %v; counted %t, %v", condition, args, got, gotErr, want, wantErr)
			}
			if got {
				held++
			}
			if gotErr != nil {
				failed++
			}
		}
	}
	if uncounted < 500 || uncounted > 1900 || held < 500 || failed < 500 {
		t.Errorf("%d of 2000 are not counted, %d times one held, %d times one failed", uncounted, held, failed)
	}
}

// conditions makes conditions over the arguments of mail.
type conditions struct{ r *rand.Rand }

func (m conditions) one(of ...string) string { return of[m.r.IntN(len(of))] }

func (m conditions) truth(depth int) string {
	if depth == 0 {
		return m.one("true", "params.urgent", "has(params.n)", "has(params.header)", "call.operator", "has(params.labels.x)")
	}
	switch m.r.IntN(7) {
	case 0:
		return "(" + m.truth(depth-1) + m.one(" && ", " || ") + m.truth(depth-1) + ")"
	case 1:
		return "!(" + m.truth(depth-1) + ")"
	case 2:
		return "(" + m.truth(depth-1) + " ? " + m.truth(depth-1) + " : " + m.truth(depth-1) + ")"
	case 3, 4:
		return m.number(depth-1) + m.one(" == ", " != ", " < ", " <= ", " > ", " >= ") + m.number(depth-1)
	case 5:
		return m.text() + m.one(" == ", " != ", " < ", " >= ") + m.text()
	}
	return m.one(`params.to in ["a", "b"]`, `params.to.size() < 3`, `params.any == 3`, `params.cc.size() > 1`, `params.size < 2.5`, `params.size / 0.0 > 1.0`)
}

func (m conditions) number(depth int) string {
	if depth == 0 || m.r.IntN(2) == 0 {
		return m.one("params.n", "params.n", "1", "2", "0", "-3", "9223372036854775807")
	}
	return "(" + m.number(depth-1) + m.one(" + ", " - ", " * ", " / ", " % ") + m.number(depth-1) + ")"
}

func (m conditions) text() string {
	return m.one("params.to", "params.header.from", "params.labels.x", `"a"`, `"b"`, `""`, "tool.name", "call.actor")
}

// args are arguments of mail, some of them left out.
func (m conditions) args() []byte {
	all := map[string]any{}
	for name, values := range map[string][]any{
		"to": {"a", "b", "", "send_email"}, "n": {0, 1, 2, -3}, "size": {1.5, 3}, "urgent": {true, false}, "any": {3, "x", []any{1}}, "cc": {[]any{}, []any{"a", "b"}},
		"header": {map[string]any{}, map[string]any{"from": "a"}}, "labels": {map[string]any{}, map[string]any{"x": "b"}},
	} {
		if m.r.IntN(4) > 0 {
			all[name] = values[m.r.IntN(len(values))]
		}
	}
	b, _ := json.Marshal(all)
	return b
}

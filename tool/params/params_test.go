// SPDX-License-Identifier: Apache-2.0

package params

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

// TestNumberUnsaid: a fault does not repeat the number, which may be of an argument that
// no record has.
func TestNumberUnsaid(t *testing.T) {
	for _, n := range []string{"9007199254740993", "7e400"} {
		if _, err := Read([]byte(`{"pin":` + n + `}`)); err == nil || strings.Contains(err.Error(), n) || !strings.Contains(err.Error(), "/pin") {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// TestReadRefuses: attack case P07, as far as text alone can be one.
func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"empty", ``, "not JSON"},
		{"twice", `{"a":1,"a":2}`, "arguments /a: the name is there twice"},
		{"twice within", `{"x":[{"a":1,"\u0061":2}]}`, "/x/0/a: the name is there twice"},
		{"two values", `{} {}`, "not JSON"},
		{"NaN", `{"a":NaN}`, "not JSON"},
		{"Infinity", `[Infinity]`, "not JSON"},
		{"comment", `{/**/}`, "not JSON"},
		{"comma", `[1,]`, "not JSON"},
		{"1e400", `{"a":1e400}`, "too large or too small"},
		{"1e-400", `{"a":1e-400}`, "too large or too small"},
		{"huge exponent", `{"a":1e999999999}`, "too large or too small"},
		{"huge integer", `{"a":9007199254740993}`, "write it as text"},
		{"negative", `{"a":-9007199254740993}`, "write it as text"},
		{"many digits", `{"a":` + strings.Repeat("1", 100) + `}`, "100 characters"},
		{"many zeros", `{"a":0.` + strings.Repeat("0", 100) + `1}`, "characters"},
		{"deep list", strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), "not JSON"},
		{"deeper than we go", strings.Repeat("[", 40) + strings.Repeat("]", 40), "nested deeper"},
		{"deep object", strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), "nested deeper"},
		{"many values", "[" + strings.Repeat("1,", 30_000) + "1]", "more than 20000 values"},
		{"long", `"` + strings.Repeat("a", MaxText) + `"`, "longer than 1 MiB"},
		{"NUL", `{"a":"x\u0000y"}`, "arguments /a: it has a character that cannot be seen, U+0000"},
		{"escape", `{"a":"\u001b[2J"}`, "U+001B"},
		{"bidi", `{"a":"\u202e"}`, "U+202E"},
		{"zero width", `{"a":"x\u200by"}`, "U+200B"},
		{"a byte order mark", `{"a":"\ufeffx"}`, "U+FEFF"},
		{"soft hyphen", `{"a":"x\u00ady"}`, "U+00AD"},
		{"line separator", `{"a":"x\u2028y"}`, "U+2028"},
		{"filler", `{"a":"\u3164"}`, "U+3164"},
		{"tags", "{\"a\":\"\U0001F600\U000E0041\U000E0042\"}", "U+E0041"},
		{"a text of selectors", "{\"a\":\"\U0001F600\U000E0100\U000E0101\"}", "U+E0101"},
		{"selector behind a letter", `{"a":"x\ufe0f"}`, "U+FE0F"},
		{"selector at the beginning", `{"a":"\ufe0fx"}`, "U+FE0F"},
		{"selector behind a line", `{"a":"\n\ufe0fx"}`, "U+FE0F"},
		{"joiner in a word", `{"a":"g\u200dit"}`, "U+200D"},
		{"joiner at the beginning", `{"a":"\u200cx"}`, "U+200C"},
		{"two joiners", `{"a":"é\u200d\u200cx"}`, "U+200C"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "UTF-8"},
		{"half a pair", `{"a":"\ud800"}`, "half of a pair"},
		{"the other half", `{"a":"\udc00x"}`, "half of a pair"},
		{"halves apart", `{"a":"\ud800x\udc00"}`, "half of a pair"},
		{"prototype", `{"__proto__":{"admin":true}}`, "more than a name"},
		{"constructor", `{"constructor":{}}`, "more than a name"},
		{"Cyrillic name", `{"pаth":"x"}`, "not plain ASCII"},
		{"wide name", `{"\uff50ath":"x"}`, "not plain ASCII"},
		{"composed name", `{"e\u0301":1}`, "not plain ASCII"},
		{"NUL in a name", `{"a\u0000":1}`, "not plain ASCII"},
		{"long name", `{"` + strings.Repeat("a", 300) + `":1}`, "256 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			v, err := Read([]byte(c.src))
			if err == nil {
				t.Fatalf("taken: %v", v)
			}
			if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if took := time.Since(begin); took > 20*time.Second { // microseconds to milliseconds
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestReadTakes(t *testing.T) {
	got, err := Read([]byte(`{"a":[1,-2.5e3,true,null,"x\ny \ud83d\ude00 \\ud800"],"b":{"/~":9007199254740991,"z":0,"e":0e5}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"a": []any{json.Number("1"), json.Number("-2.5e3"), true, nil, "x\ny 😀 \\ud800"},
		"b": map[string]any{"/~": json.Number("9007199254740991"), "z": json.Number("0"), "e": json.Number("0e5")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestReadTakesLetters: emoji and scripts that are written with characters of no width.
func TestReadTakesLetters(t *testing.T) {
	for _, s := range []string{
		"⚠\ufe0f x", "❤\ufe0f\u200d🔥", "👩\u200d💻", "1\ufe0f\u20e3", "می\u200cخواهم", "क्\u200dष", "葛\U000E0100", "\u06dd1", "a\u00a0b\u3000c", "\ue0b0", "x\r\n\ty",
	} {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Read(b); err != nil || got != s {
			t.Errorf("%+q: %+q, %v", s, got, err)
		}
	}
}

const mail = `{"type":"object","additionalProperties":false,"required":["to","body"],"properties":{
	"to":{"type":"string","format":"email"},"body":{"type":"string","minLength":1},"copies":{"type":"integer","minimum":0,"maximum":3},
	"when":{"type":"string","format":"date-time"},"tags":{"type":"array","items":{"enum":["a","b"]},"uniqueItems":true}}}`

func compile(t testing.TB, src string) *Schema {
	t.Helper()
	s, err := Compile([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t testing.TB, s *Schema, src string) []Fault {
	t.Helper()
	v, err := Read([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s.Check(v)
}

// TestCheck: all faults at once, each with its path.
func TestCheck(t *testing.T) {
	s := compile(t, mail)
	if f := check(t, s, `{"to":"a@company.com","body":"x","copies":2.0,"when":"2026-01-02T03:04:05Z","tags":["a","b"]}`); f != nil {
		t.Errorf("%+v", f)
	}
	var got []string
	for _, f := range check(t, s, `{"to":"nobody","copies":9,"when":"soon","tags":["a","c","a"],"bcc":"x"}`) {
		got = append(got, f.Path+": "+f.Problem)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"body", "bcc", "/to: ", "/copies: ", "/when: ", "/tags/1: ", "/tags: "} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing about %s in\n%s", want, all)
		}
	}
	if many := check(t, compile(t, `{"items":{"type":"string"}}`), "["+strings.Repeat("1,", 10_000)+"1]"); len(many) != maxFaults {
		t.Errorf("%d faults", len(many))
	}
}

// doubled is a schema that says the same twice, n times over.
func doubled(n int, leaf string) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":%s}}`, n, leaf)
	return b.String()
}

// TestCompileRefuses: schemas come from untrusted servers.
func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"no JSON", `{`, "not JSON"},
		{"twice", `{"type":"object","type":"string"}`, "twice"},
		{"not a schema", `{"type":"nonsense"}`, ""},
		{"remote", `{"$ref":"http://127.0.0.1:9/x.json"}`, "nothing outside"},
		{"file", `{"$ref":"file:///etc/passwd"}`, "nothing outside"},
		{"beside it", `{"$ref":"other.json"}`, "nothing outside"},
		{"remote draft", `{"$schema":"http://127.0.0.1:9/meta"}`, "nothing outside"},
		{"old draft", `{"$schema":"http://json-schema.org/draft-04/schema#"}`, "2020-12"},
		{"dangling", `{"$ref":"#/$defs/none"}`, ""},
		{"loop", `{"$ref":"#"}`, "without end"},
		{"long loop", `{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, "without end"},
		{"doubling", doubled(40, `{"type":"string"}`), "more than 10000 steps"},
		{"doubling with every level", `{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`, "more than 10000 steps"},
		{"doubling in lists", `{"prefixItems":[{"$ref":"#"}],"items":{"$ref":"#"},"contains":{"$ref":"#"}}`, "more than 10000 steps"},
		{"long", `{"description":"` + strings.Repeat("a", MaxSchema) + `"}`, "longer than 64 KiB"},
		{"regexp", `{"pattern":"("}`, ""},
		{"backreference", `{"pattern":"(a)\\1"}`, ""},
		{"long program", `{"pattern":"` + strings.Repeat("x{1000}", 500) + `"}`, "more than 5000 steps"},
		{"program in programs", `{"pattern":"((x{10}){10}){10}y{1000}z{1000}.{900}.{900}[^a]{900}"}`, "more than 5000 steps"},
		{"long pattern", `{"pattern":"` + strings.Repeat("x", 5000) + `"}`, "the most is 4096"},
		{"many programs", `{"allOf":[` + strings.Repeat(`{"pattern":"x{1000}"},`, 60) + `{}]}`, "all patterns of the schema"},
		{"patterns for names", `{"patternProperties":{"x{1000}y{1000}z{1000}.{999}.{999}.{999}":{}}}`, "more than 5000 steps"},
		{"hidden text", `{"description":"\u202e"}`, "cannot be seen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Compile([]byte(c.src))
			if err == nil || s != nil {
				t.Fatal("taken")
			}
			if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	for _, src := range []string{
		`{}`, mail, doubled(10, `{"type":"string"}`), `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`,
		`{"properties":{"children":{"type":"array","items":{"$ref":"#"}},"next":{"$ref":"#"}}}`, `{"maximum":9223372036854775807}`,
	} {
		compile(t, src)
	}
}

// TestCheckIsBounded: what takes long elsewhere does not here.
func TestCheckIsBounded(t *testing.T) {
	numbers := make([]string, 15_000)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	for _, c := range []struct{ schema, value string }{
		{`{"uniqueItems":true}`, "[" + strings.Join(numbers, ",") + "]"},
		{`{"items":{"pattern":"^(a+)+$"}}`, `["` + strings.Repeat("a", 500_000) + `!"]`},
		{`{"items":{"multipleOf":1e-300}}`, `[1e300,12345.678e-300]`},
		{doubled(8, `{"type":"object"}`), "[]"},
	} {
		done := make(chan struct{})
		go func() { v, _ := Read([]byte(c.value)); compile(t, c.schema).Check(v); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%.60s takes for ever", c.schema)
		}
	}
}

// TestPatternsAreBounded: what a pattern would take too long to say, it says neither
// yes nor no to, because under not both would let something through.
func TestPatternsAreBounded(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", 200_000) + `"}`
	for _, schema := range []string{
		`{"properties":{"a":{"pattern":".{0,900}.{0,900}y$"}}}`,
		`{"properties":{"a":{"not":{"pattern":".{0,900}.{0,900}y$"}}}}`,
		`{"anyOf":[{"properties":{"a":{"pattern":".{0,900}.{0,900}y$"}}},{}]}`,
		`{"properties":{"a":{"format":"regex"}},"patternProperties":{".{0,900}.{0,900}y$":{}}}`,
	} {
		v, err := Read([]byte(long))
		if err != nil {
			t.Fatal(err)
		}
		s := compile(t, schema)
		faults := s.Check(v)
		if len(faults) != 1 || !strings.Contains(faults[0].Problem, "too long") && !strings.Contains(faults[0].Problem, "the most is") {
			t.Errorf("%s: %.300v", schema, faults)
		}
		small, err := Read([]byte(`{"a":"xy"}`)) // the next check begins anew
		if err != nil {
			t.Fatal(err)
		}
		if faults := s.Check(small); len(faults) > 0 && !strings.Contains(schema, "not") {
			t.Errorf("%s: %v", schema, faults)
		}
	}
	v, err := Read([]byte(`["` + strings.Repeat(`x{1000}","`, 20_000-10) + `"]`))
	if err != nil {
		t.Fatal(err)
	}
	if f := compile(t, `{"items":{"format":"regex"}}`).Check(v); len(f) != 0 { // parsed, not compiled
		t.Errorf("%.300v", f)
	}
	b := strings.Repeat("b", 100_000)
	if f := check(t, compile(t, `{"items":{"pattern":"a","enum":["`+strings.Repeat("c", 5000)+`"]}}`), `["`+b+`"]`); len(f) == 0 || len(f[0].Problem) > 2000 {
		t.Errorf("a fault of %d bytes", len(fmt.Sprint(f)))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x",{"b":null}]}`))
	f.Add([]byte(`{"a":"\ud83d\ude00","b":1e308}`))
	s := compile(f, mail)
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := Read(src)
		if err != nil {
			return
		}
		var std any
		if err := json.Unmarshal(src, &std); err != nil {
			t.Fatalf("taken, and encoding/json does not: %v", err)
		}
		// Written again and read as floats, it is the same.
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(std, again); diff != "" {
			t.Errorf("readers differ: %s", diff)
		}
		s.Check(v)
	})
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(mail), []byte(`{"to":"x"}`))
	f.Add([]byte(doubled(3, `{"type":"string"}`)), []byte(`"x"`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		s, err := Compile(schema)
		if err != nil {
			return
		}
		if v, err := Read(value); err == nil {
			s.Check(v)
		}
	})
}

func BenchmarkReadAndCheck(b *testing.B) {
	s := compile(b, mail)
	src := []byte(`{"to":"a@company.com","body":"Hello there","copies":2,"tags":["a","b"]}`)
	for b.Loop() {
		v, err := Read(src)
		if err != nil || s.Check(v) != nil {
			b.Fatal(err)
		}
	}
}

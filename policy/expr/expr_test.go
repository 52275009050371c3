// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tool/params"
)

const mail = `{"type":"object","additionalProperties":false,"required":["to"],"properties":{
	"to":{"type":"string"},"cc":{"type":"array","items":{"type":"string"}},"n":{"type":"integer"},"size":{"type":"number"},
	"path":{"type":"string"},"url":{"type":"string"},"urgent":{"type":"boolean"},"any":{},
	"header":{"type":"object","additionalProperties":false,"properties":{"from":{"type":"string"}}},
	"labels":{"type":"object","additionalProperties":{"type":"string"}}}}`

func holds(t testing.TB, condition, args string) (bool, error) {
	t.Helper()
	p := ParamsOf([]byte(mail))
	e, err := Compile(condition, p)
	if err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
	v, err := params.Read([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return e.Holds(Prepare(Input{Tool: "send_email", Params: p.Value(v), Actor: "key:ci", Sandbox: "i1"}))
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		condition, args string
		want            bool
		fault           string // in the error; then it does not hold
	}{
		{`email.domain(params.to) == "company.com"`, `{"to":"a@company.com"}`, true, ""},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@COMPANY.com"}`, true, ""},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@evilcompany.com"}`, false, ""},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@company.com.evil.com"}`, false, ""},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@evil.com, b@company.com"}`, false, "plain"},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@evil.com <b@company.com>"}`, false, "plain"},
		{`email.domain(params.to) == "company.com"`, `{"to":"\"a@evil.com\"@company.com"}`, false, "plain"},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@evil.com(@company.com"}`, false, "plain"},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@соmpany.com"}`, false, ""}, // Cyrillic: another name
		{`email.domain(params.to) == "company.com"`, `{"to":"a@[127.0.0.1]"}`, false, "host name"},
		{`email.domain(params.to) == "company.com"`, `{"to":"company.com"}`, false, "plain"},
		{`email.domain(params.to) == "company.com"`, `{"to":"a@b\nBcc:@company.com"}`, false, "plain"},
		{`email.local(params.to) == "a"`, `{"to":"a@b.com"}`, true, ""},
		{`params.cc.all(a, email.domain(a) == "company.com")`, `{"to":"x","cc":["a@company.com","b@evil.com"]}`, false, ""},
		{`!has(params.cc) || params.cc.size() < 3`, `{"to":"x"}`, true, ""},
		{`params.cc.size() < 3`, `{"to":"x"}`, false, "not given"},

		{`path.under(params.path, "/data")`, `{"to":"","path":"/data/a"}`, true, ""},
		{`path.under(params.path, "/data")`, `{"to":"","path":"/data"}`, true, ""},
		{`path.under(params.path, "/data")`, `{"to":"","path":"/data/../etc/passwd"}`, false, ""},
		{`path.under(params.path, "/data")`, `{"to":"","path":"/database"}`, false, ""},
		{`path.under(params.path, "/data")`, `{"to":"","path":"//data/./x"}`, true, ""},
		{`path.under(params.path, "/data")`, `{"to":"","path":"data/x"}`, false, "absolute"},
		{`!path.under(params.path, "/system")`, `{"to":"","path":"x/../../system"}`, false, "absolute"}, // a refusal, not its opposite
		{`path.base(params.path) == "b" && path.ext(params.path) == "" && path.clean(params.path) == "/a/b"`, `{"to":"","path":"/a//b/"}`, true, ""},

		{`url(params.url).host == "api.example.com"`, `{"to":"","url":"https://API.example.com./v1?x=1"}`, true, ""},
		{`url(params.url).host == "api.example.com"`, `{"to":"","url":"https://api.example.com@evil.com/"}`, false, "user"},
		{`url(params.url).host == "api.example.com"`, `{"to":"","url":"https://evil.com\\@api.example.com/"}`, false, "plain"},
		{`url(params.url).host == "api.example.com"`, `{"to":"","url":"//api.example.com/"}`, false, "http"},
		{`url(params.url).host == "api.example.com"`, `{"to":"","url":"javascript:alert(1)"}`, false, "absolute"},
		{`url(params.url).path == "/a" && url(params.url).port == 443 && url(params.url).scheme == "https"`, `{"to":"","url":"https://x.com/b/../a"}`, true, ""},
		{`path.under(url(params.url).path, "/v1")`, `{"to":"","url":"https://x.com/v1/%2e%2e/admin"}`, false, ""},
		{`path.under(url(params.url).path, "/v1")`, `{"to":"","url":"https://x.com/v1/..%2fadmin"}`, false, "hides"},
		{`path.under(url(params.url).path, "/v1")`, `{"to":"","url":"https://x.com/v1/%252e%252e/admin"}`, false, "hides"},
		{`host(params.url) == "127.0.0.1"`, `{"to":"","url":"::ffff:127.0.0.1"}`, true, ""},
		{`host(params.url) == "127.0.0.1"`, `{"to":"","url":"0x7f000001"}`, false, "not a host"},
		{`host.under(params.url, "example.com")`, `{"to":"","url":"a.Example.com"}`, true, ""},
		{`host.under(params.url, "example.com")`, `{"to":"","url":"notexample.com"}`, false, ""},
		{`glob(params.path, "repo-*/?.go")`, `{"to":"","path":"repo-a/b/x.go"}`, true, ""},
		{`glob(params.path, "repo-*")`, `{"to":"","path":"my-repo-a"}`, false, ""},

		{`params.n < 3 && params.size >= 1`, `{"to":"","n":2.0,"size":1}`, true, ""},
		{`params.any == 3`, `{"to":"","any":3.0}`, true, ""},
		{`params.header.from == "x" && params.labels["a"] == "b"`, `{"to":"","header":{"from":"x"},"labels":{"a":"b"}}`, true, ""},
		{`tool.name == "send_email" && call.actor == "key:ci" && !call.operator && call.sandbox == "i1"`, `{"to":""}`, true, ""},
		{`params.n / 0 == 1`, `{"to":"","n":1}`, false, "division"},
	} {
		got, err := holds(t, c.condition, c.args)
		if got != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s with %s: %t, %v; want %t, %q", c.condition, c.args, got, err, c.want, c.fault)
		}
	}
}

// Faults are found when the file is read, with their place.
func TestCompileRefuses(t *testing.T) {
	p := ParamsOf([]byte(mail))
	for _, c := range []struct {
		condition    string
		line, column int
		want         string
	}{
		{`params.too == "x"`, 1, 7, "too"},
		{"true &&\n params.header.form == ''", 2, 15, "form"},
		{`params.n == "three"`, 1, 10, "no matching overload"},
		{`email.domain(params.n) == ""`, 1, 13, "no matching overload"},
		{`params.to`, 1, 1, "must be true or false"},
		{`params.any`, 1, 1, "must be true or false"},
		{`params.to ==`, 1, 13, ""},
		{`nothing(1)`, 1, 8, "undeclared"},
		{`tool.title == ""`, 1, 5, "title"},
		{``, 1, 1, "empty"},
		{strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100), 0, 0, ""},
		{strings.Repeat("true && ", 1000) + "true", 0, 0, ""},
	} {
		_, err := Compile(c.condition, p)
		var f Faults
		if !errors.As(err, &f) || len(f) == 0 {
			t.Errorf("%.60q is taken: %v", c.condition, err)
			continue
		}
		if c.line > 0 && (f[0].Line != c.line || f[0].Column != c.column || !strings.Contains(f[0].Problem, c.want)) {
			t.Errorf("%q: %v; want %d:%d %s", c.condition, err, c.line, c.column, c.want)
		}
	}
	if _, err := Compile(`params.whatever.x == 1 && has(params.y)`, nil); err != nil {
		t.Errorf("open arguments: %v", err)
	}
}

// TestBounded: what would take long is refused instead, and soon.
func TestBounded(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"aaaaaaaaaaaaaaaaaaaa",`, 15_000), ",")
	args := fmt.Sprintf(`{"to":"%s","cc":[%s]}`, strings.Repeat("a", 10_000), many)
	for _, condition := range []string{
		`params.cc.all(a, params.cc.all(b, a == b))`,
		`params.cc.all(a, params.cc.exists_one(b, a + b == params.to))`,
		`params.cc.all(a, glob(params.to, "*a*a*a*a*a*a*b") || true)`,
		`params.cc.map(a, params.to + params.to).size() > 0`,
		`params.cc.all(a, params.to.matches("(a*)*b") || true)`,
	} {
		if got, err := holds(t, condition, args); got || err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%s: %t, %v", condition, got, err)
		}
	}
}

// TestBoundedWithoutTypes: what a function costs is counted where its types are not
// known beforehand, too.
func TestBoundedWithoutTypes(t *testing.T) {
	v, err := params.Read(fmt.Appendf(nil, `{"to":"%s","list":[%s"b"]}`, strings.Repeat("a", 10_000), strings.Repeat(`"a",`, 9_000)))
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range []string{
		`params.list.all(a, !(params.to in params.list))`,
		`params.list.all(a, bytes(params.to) != b"x")`,
		`params.list.all(a, string(params.to) != "x")`,
		`params.list.all(a, size(params.to) > 0)`,
		`params.list.all(a, params.to.size() > 0)`,
		`params.list.all(a, params.to + params.to != "")`,
	} {
		e, err := Compile(condition, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Holds(Prepare(Input{Params: (*Params)(nil).Value(v)})); got || err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%s: %t, %v", condition, got, err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`email.domain(params.to) == "company.com"`, `{"to":"a@company.com"}`)
	f.Add(`params.cc.all(a, path.under(a, "/x"))`, `{"cc":["/x/y"]}`)
	f.Add(`url(params.url).host == "x" || glob(params.to, "a*")`, `{"url":"http://x","to":"ab"}`)
	p := ParamsOf([]byte(mail))
	f.Fuzz(func(t *testing.T, condition, args string) {
		e, err := Compile(condition, p)
		if err != nil {
			if f := (Faults)(nil); !errors.As(err, &f) {
				t.Fatalf("%T", err)
			}
			return
		}
		if v, err := params.Read([]byte(args)); err == nil {
			e.Holds(Prepare(Input{Params: p.Value(v)}))
		}
	})
}

// FuzzHelp: a helper has one spelling for what it takes.
func FuzzHelp(f *testing.F) {
	for _, s := range []string{"a@b.com", "https://x.com/a/../b", "/a/b", "EXAMPLE.com.", "::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if h, err := hostOf(s); err == nil {
			if again, err := hostOf(h); err != nil || again != h {
				t.Fatalf("%q is %q, which is %q, %v", s, h, again, err)
			}
		}
		if p, err := pathClean(s); err == nil {
			if under, err := pathUnder(s, "/data"); err != nil || under != (p == "/data" || strings.HasPrefix(p, "/data/")) {
				t.Fatalf("%q: %t, %v", s, under, err)
			}
		}
		if _, d, err := email(s); err == nil && (strings.Count(s, "@") != 1 || d == "") {
			t.Fatalf("%q has the domain %q", s, d)
		}
		if u, err := urlOf(s); err == nil && (u["host"] == "" || !strings.HasPrefix(u["path"].(string), "/")) {
			t.Fatalf("%q is %v", s, u)
		}
	})
}

// TestEmail: of an address that some mailer delivers elsewhere there is no domain.
func TestEmail(t *testing.T) {
	for s, want := range map[string]string{
		"a@company.com":                    "company.com",
		"A.b-c_d+tag@Company.COM":          "company.com",
		"o'brien@company.com":              "company.com",
		"_dmarc@company.com":               "company.com",
		"1@company.com":                    "company.com",
		"a+evil.com@company.com":           "company.com",
		"a@bücher.example":                 "xn--bcher-kva.example",
		"a@BÜCHER.example":                 "xn--bcher-kva.example",
		"a@xn--bcher-kva.example":          "xn--bcher-kva.example",
		"a@соmpany.com":                    "xn--mpany-iyeu.com", // Cyrillic: another name
		strings.Repeat("a", 64) + "@b.com": "b.com",
	} {
		if _, domain, err := email(s); err != nil || domain != want {
			t.Errorf("%q has the domain %q, want %q: %v", s, domain, want, err)
		}
	}
	for what, list := range map[string][]string{
		"percent hack":     {"a%evil.com@company.com", "a%b%evil.com@company.com", "%@company.com"},
		"UUCP path":        {"evil.com!a@company.com", "x!evil.com!a@company.com", "!a@company.com", "company.com!a"},
		"source route":     {"@evil.com:a@company.com", "@evil.com,@x.com:a@company.com", "<@evil.com:a@company.com>"},
		"X.400 route":      {"/S=a/O=evil/@company.com", "c=us;s=a@company.com"},
		"quoted":           {`"a@evil.com"@company.com`, `"a"@company.com`, `a."b"@company.com`, `"a\"@company.com`, `a\@evil.com@company.com`},
		"comment":          {"a(@evil.com)@company.com", "a@evil.com(@company.com", "a@(x)company.com", "a@company.com(evil.com)"},
		"IP address":       {"a@[127.0.0.1]", "a@127.0.0.1", "a@[IPv6:::1]", "a@2130706433", "a@0x7f.1"},
		"several @":        {"a@evil.com@company.com", "a@@company.com", "@company.com", "a@", "@", ""},
		"list":             {"a@evil.com,b@company.com", "a@evil.com;b@company.com", "a@evil.com b@company.com"},
		"group":            {"x:a@evil.com,b@company.com;", "undisclosed:;@company.com"},
		"display name":     {"A <a@company.com>", "<a@company.com>", "a@company.com <a@evil.com>", "a@evil.com <b@company.com>"},
		"URL":              {"mailto:a@company.com", "a@company.com?bcc=a@evil.com", "a@company.com/x", "a@company.com:25"},
		"dots":             {"a@company.com.", "a@.company.com", "a@company..com", ".a@company.com", "a.@company.com", "a..b@company.com", "a@."},
		"option":           {"-oQ/tmp@company.com", "+a@company.com", "'a@evil.com'@company.com"},
		"program":          {"|sh@company.com", "`id`@company.com", "$(id)@company.com", "a&b@company.com", ":include:x@company.com"},
		"header":           {"a@b\nBcc:@company.com", "a@company.com\r\nBcc: b@evil.com", "a\n@company.com", "a@company.com\x00.evil.com", "a@company.com\t"},
		"white space":      {" a@company.com", "a@company.com ", "a @company.com", "a@ company.com", "a\u00a0@company.com"},
		"letters":          {"ä@company.com", "а@company.com", "a\u200b@company.com", "a\u202e@company.com", "\xff@company.com"},
		"another @":        {"a＠company.com", "a＠evil.com@company.com", "a﹫evil.com@company.com"},
		"mapped domain":    {"a@ｃompany.com", "a@company。com", "a@company．com", "a@ⓒompany.com", "a@com\u00adpany.com", "a@com\u200bpany.com", "a@ℂompany.com"},
		"punycode":         {"a@xn--company-.com", "a@xn--a.com", "a@xn--.com"},
		"too long":         {strings.Repeat("a", 65) + "@company.com", "a@" + strings.Repeat("b.", 130) + "company.com"},
		"hyphen in domain": {"a@-company.com", "a@company-.com"},
	} {
		for _, s := range list {
			if local, domain, err := email(s); err == nil {
				t.Errorf("%s: %q has the local part %q and the domain %q", what, s, local, domain)
			}
		}
	}
}

func BenchmarkHolds(b *testing.B) {
	p := ParamsOf([]byte(mail))
	e, err := Compile(`email.domain(params.to) == "company.com"`, p)
	if err != nil {
		b.Fatal(err)
	}
	v, _ := params.Read([]byte(`{"to":"a@company.com","n":1}`))
	for b.Loop() {
		if ok, err := e.Holds(Prepare(Input{Params: p.Value(v)})); !ok {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(`email.domain(params.to) == "company.com"`, ParamsOf([]byte(mail))); err != nil {
			b.Fatal(err)
		}
	}
}

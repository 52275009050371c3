// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/base64"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// piece is a part of an answer, and how long it comes after the one before.
type piece struct {
	after time.Duration
	text  string
}

// timed is a body whose pieces come one by one.
type timed struct{ pieces []piece }

func (b *timed) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		return 0, io.EOF
	}
	first := &b.pieces[0]
	time.Sleep(first.after)
	first.after = 0
	n := copy(p, first.text)
	if first.text = first.text[n:]; first.text == "" {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func (b *timed) Close() error { return nil }

// out is what had been given out by a time.
type out struct {
	at   time.Duration
	text string
}

// received is what Body gives out of pieces, and when. It must run in a bubble.
func received(t *testing.T, r Redaction, live bool, pieces []piece) (all []out) {
	t.Helper()
	body := r.Body(&timed{append([]piece(nil), pieces...)}, live)
	defer body.Close()
	start, text, b := time.Now(), "", make([]byte, 32<<10)
	for {
		n, err := body.Read(b)
		text += string(b[:n])
		now := out{time.Since(start), text}
		if last := len(all) - 1; last >= 0 && all[last].at == now.at {
			all[last] = now
		} else {
			all = append(all, now)
		}
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSameBytes holds that an answer that has no whole secret comes in the same
// way whatever the secret is. Held back only as long as it may begin a secret, or
// by the secret's length, it does not.
func TestSameBytes(t *testing.T) {
	redaction := func(value, sent string) Redaction {
		s := Secrets{secret(t, func(s *wire.Secret) { s.Value = wire.Value(value) })}
		r, err := at(t, s, http.Header{"Authorization": {sent}})
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		return r
	}
	basic := "Basic " + b64("me:"+holder)
	secrets := map[string]Redaction{
		"one": redaction(value, "Bearer "+holder), "another": redaction("zzzzzzzzzzzz", "Bearer "+holder), "short": redaction("k", "Bearer "+holder),
		"long": redaction(strings.Repeat("q", rule.MaxSecret), "Bearer "+holder), "in base64": redaction(value, basic), "another in base64": redaction("zzzzzzzzzzzz", basic),
	}
	secrets["two"] = append(append(Redaction{}, secrets["one"]...), secrets["another"]...)
	begun := value[:len(value)-1]
	for what, pieces := range map[string][]piece{
		"nothing":              nil,
		"one piece":            {{0, ">"}, {200 * time.Millisecond, "\n"}},
		"a beginning":          {{0, ">" + begun}, {200 * time.Millisecond, "\n"}},
		"one letter":           {{0, ">s"}, {200 * time.Millisecond, "\n"}},
		"a beginning, base64":  {{0, ">" + b64("me:"+begun)}, {200 * time.Millisecond, "\n"}},
		"a beginning in parts": {{0, ">sk-"}, {5 * time.Millisecond, "the-"}, {5 * time.Millisecond, "real"}, {30 * time.Millisecond, "!"}},
		"of a long one":        {{0, strings.Repeat("q", rule.MaxSecret-1)}, {time.Millisecond, strings.Repeat("a", 60<<10) + begun}, {time.Second, "\n"}},
		"at the end":           {{time.Millisecond, begun}},
		"letter by letter":     letters(strings.Repeat(begun, 10), 700*time.Microsecond),
	} {
		for _, live := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				var want []out
				var first string
				for name, r := range secrets {
					got := received(t, r, live, pieces)
					if want == nil {
						want, first = got, name
					} else if !reflect.DeepEqual(got, want) {
						t.Errorf("%s, live %t: secret %q gives %v, %q %v", what, live, name, brief(got), first, brief(want))
					}
				}
			})
		}
	}
}

func letters(s string, after time.Duration) (all []piece) {
	for i := range len(s) {
		all = append(all, piece{after, s[i : i+1]})
	}
	return all
}

// brief is when how many bytes had come.
func brief(all []out) (b []any) {
	for _, o := range all {
		b = append(b, o.at.String(), len(o.text))
	}
	return b
}

// TestEventsInTime holds that what comes word by word is at most 20 ms late.
func TestEventsInTime(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Microsecond, time.Millisecond, 7 * time.Millisecond, 19 * time.Millisecond, 20 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			events := letters(strings.Repeat("data: sk-the-real-valu\n\n", 20), every)
			for i, o := range received(t, Redaction{[]byte(value)}, true, events) {
				// At a time, all has come that was sent 20 ms before.
				if sent := min(len(events), int((o.at-holdTime)/every)); len(o.text) < sent {
					t.Fatalf("every %v: after %v (%d) %d bytes, not %d", every, o.at, i, len(o.text), sent)
				}
			}
		})
	}
}

// TestPieces says which secrets are covered: in a live answer those that come within
// 20 ms, and of one that comes more slowly the last piece; in any other all.
func TestPieces(t *testing.T) {
	far := strings.Repeat("a", 14<<10)
	for _, c := range []struct {
		live   bool
		pieces []piece
		want   string
	}{
		{true, []piece{{0, "key sk-the-r"}, {18 * time.Millisecond, "eal-value!"}}, "key *****************!"},
		{true, letters("key sk-the-real-value!", time.Millisecond), "key *****************!"},
		{true, []piece{{0, "key sk-the-r"}, {21 * time.Millisecond, "eal-value!"}}, "key sk-the-r*********!"},
		{false, []piece{{0, "key sk-the-r"}, {21 * time.Millisecond, "eal-value!"}}, "key *****************!"},
		{false, letters("key sk-the-real-value!", time.Second), "key *****************!"},
		{false, []piece{{0, far + "sk-the-r"}, {300 * time.Millisecond, "eal-value!" + far + far}}, far + "*****************!" + far + far},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := received(t, Redaction{[]byte(value)}, c.live, c.pieces)
			if got := all[len(all)-1].text; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestLongestForm holds that any secret is whole before its first byte is given out.
func TestLongestForm(t *testing.T) {
	v := strings.Repeat("v", rule.MaxSecret)
	s := secret(t, func(s *wire.Secret) { s.Value = wire.Value(v) })
	h := http.Header{"Authorization": {"Basic " + b64(strings.Repeat("u", maxOther)+":"+holder)}}
	r, err := at(t, Secrets{s}, h)
	if err != nil || len(r) != 2 {
		t.Fatal(len(r), err)
	}
	for _, form := range r {
		if len(form) >= holdBytes {
			t.Errorf("a form of %d bytes", len(form))
		}
		in := strings.Repeat("a", 50<<10) + string(form) + strings.Repeat("b", 50<<10)
		got, err := io.ReadAll(r.Body(io.NopCloser(strings.NewReader(in)), false))
		if want := strings.Replace(in, string(form), strings.Repeat("*", len(form)), 1); err != nil || string(got) != want {
			t.Errorf("a form of %d bytes is not covered, %v", len(form), err)
		}
	}
	long := "Basic " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", maxOther+1)+":"+holder))
	if _, err := at(t, Secrets{s}, http.Header{"Authorization": {long}}); err == nil {
		t.Error("a longer user is taken")
	}
}

// TestHeldBodyCloses holds that Close ends a read that waits, and reading ahead.
func TestHeldBodyCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		body := Redaction{}.Body(pr, true)
		done := make(chan error)
		go func() { _, err := io.Copy(io.Discard, body); done <- err }()
		if _, err := pw.Write(make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		body.Close()
		if err := <-done; err == nil {
			t.Error("it ends as if the body did")
		}
		// This one is not read: what is read ahead is bounded.
		pr, pw = io.Pipe()
		body = Redaction{}.Body(pr, true)
		wrote := make(chan int)
		go func() { n, _ := pw.Write(make([]byte, 100<<10)); wrote <- n }()
		_, _ = body.Read(nil)
		synctest.Wait()
		body.Close()
		if n := <-wrote; n > holdBytes+2*readSize {
			t.Errorf("%d bytes are read ahead", n)
		}
	})
}

// BenchmarkBody passes 16 MiB that hold no secret.
func BenchmarkBody(b *testing.B) {
	in := strings.Repeat("sk-the-real-valu", 1<<20)
	b.SetBytes(int64(len(in)))
	r := Redaction{[]byte(value), []byte(b64("me:" + value))}
	for b.Loop() {
		_, _ = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r.Body(io.NopCloser(strings.NewReader(in)), false)})
	}
}

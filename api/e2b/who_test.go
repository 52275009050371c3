// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
)

// askingFrontend is a frontend that offers root under a policy of these lines, and every
// question's view, each of which is answered with yes.
func askingFrontend(t *testing.T, lines string) (*frontend, <-chan string) {
	t.Helper()
	file, err := policy.Parse("/p.yaml", []byte("version: 1\n"+lines))
	if err != nil {
		t.Fatal(err)
	}
	var approvals *question.Approvals
	d := newFrontendUnder(t, file, func(o *persistent.SandboxesOptions) {
		o.Templates = map[string]persistent.Template{persistent.BaseTemplate: {Root: true}}
		approvals = question.New(question.Options{Dir: o.State.Path(), Journal: o.Journal})
		o.Approvals = approvals
	})
	t.Cleanup(func() { approvals.Close() })
	store := approvaltest.Store(t, approvals)
	ada := approvaltest.Ada(t, store, approval.Web)
	return d, approvaltest.SayYes(t, store, func(ctx context.Context, r *approval.Request) error {
		_, err := approvals.Answer(ctx, ada, r.ID, question.Answer{Yes: true, Digest: r.Digest})
		return err
	})
}

// as is how a client names a user.
func as(user string, h map[string]string) map[string]string {
	if user == "" {
		return h
	}
	return with(h, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
}

// start runs a process as a user, and returns what it wrote, or the code of why not.
func (d *frontend) start(t *testing.T, b box, user, process string) (said, code string) {
	t.Helper()
	_, answer, _ := d.raw(t, "POST", "/process.Process/Start", as(user, with(b.to(49983), "Content-Type", "application/connect+json")), envelope(`{"process":`+process+`,"stdin":false}`))
	for len(answer) >= 5 {
		n := binary.BigEndian.Uint32(answer[1:])
		var e struct {
			Event struct {
				Data struct{ Stdout, Stderr []byte }
			}
			Error struct{ Code string }
		}
		if err := json.Unmarshal(answer[5:5+n], &e); err != nil {
			t.Fatalf("%s: %q %v", process, answer, err)
		}
		said, code = said+string(e.Event.Data.Stdout)+string(e.Event.Data.Stderr), code+e.Error.Code
		answer = answer[5+n:]
	}
	return said, code
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// What an approver is shown of a process is who runs it, where, and what is in the
// files that it names there; and the record says who. No user can be named that
// only the account file inside knows.
func TestYesIsForWhoRuns(t *testing.T) {
	type one struct{ name, cwd, uid, who, dir string }
	for lines, all := range map[string][]one{
		"user: sudoer\n": {
			{"", "", "1000", "user", "/home/user"}, {"user", "", "1000", "user", "/home/user"}, {"root", "", "0", "root", "/root"},
			{"", "sub", "1000", "user", "/home/user/sub"}, {"root", "sub", "0", "root", "/root/sub"}, {"root", "~", "0", "root", "/root"},
			{"root", "/tmp/.", "0", "root", "/tmp"}, {"root", "~/../home/user", "0", "root", "/home/user"},
		},
		// There the sandbox's directory is not its user's home.
		"user: root\n": {
			{"", "", "0", "root", "/home/user"}, {"root", "", "0", "root", "/home/user"}, {"user", "", "1000", "user", "/home/user"},
			{"", "sub", "0", "root", "/root/sub"}, {"user", "sub", "1000", "user", "/home/user/sub"}, {"user", "~", "1000", "user", "/home/user"},
		},
	} {
		t.Run(lines, func(t *testing.T) {
			d, shown := askingFrontend(t, lines+"files: {writable: [/root, /home/user, /tmp]}\ncommands: {ask: [\"cat *\"]}\napprovals: {channels: [web], timeout: 5m}\n")
			b := d.create(t, "")
			own := all[0].who
			for _, dir := range []string{"/home/user", "/home/user/sub", "/root", "/root/sub", "/tmp"} {
				if status, a, _ := d.raw(t, "POST", "/files?path="+dir+"/run.txt", as("root", with(b.to(49983), "Content-Type", "application/octet-stream")), "this is "+dir); status != 200 {
					t.Fatalf("%d %s", status, a)
				}
			}
			var want []string // of whom records say that it was they
			for _, c := range all {
				said, code := d.start(t, b, c.name, `{"cmd":"sh","args":["-c","id -u; pwd; printenv HOME; cat run.txt"],"cwd":"`+c.cwd+`"}`)
				home, text := map[string]string{"user": "/home/user", "root": "/root"}[c.who], "this is "+c.dir
				if code != "" || said != strings.Join([]string{c.uid, c.dir, home, text}, "\n") {
					t.Errorf("%+v runs %q %s", c, said, code)
				}
				view := <-shown
				for _, part := range []string{"user:\n  │ " + c.who, "directory:\n  │ " + c.dir, "run.txt is " + c.dir + "/run.txt\n  │ sha256:" + digestOf(text) + ", "} {
					if !strings.Contains(view, part) {
						t.Errorf("%+v is shown as\n%s\nwant %q", c, view, part)
					}
				}
				who := c.who
				if who == own {
					who = ""
				}
				want = append(want, who, who) // asked, and run
			}
			for _, name := range []string{"nobody", "daemon", "stranger", "0", "1000"} {
				if said, code := d.start(t, b, name, `{"cmd":"cat","args":["run.txt"]}`); code != "unauthenticated" || said != "" {
					t.Errorf("%q: %q %s", name, said, code)
				}
				want = append(want, name)
			}
			if len(shown) > 0 {
				t.Errorf("asked, too: %s", <-shown)
			}
			if got := d.recordedUsers(t, b); !slices.Equal(got, want) {
				t.Errorf("recorded are %q, want %q", got, want)
			}
		})
	}
}

// recordedUsers are those that records of programs name. The frontend is closed then.
func (d *frontend) recordedUsers(t *testing.T, b box) (users []string) {
	t.Helper()
	d.boxes.Close(t.Context()) // no answer is under way any more
	for r, err := range d.log.Query(t.Context(), audit.Filter{OldestFirst: true, Sandbox: b.id}) {
		if err != nil {
			t.Fatal(err)
		}
		if k := r.Call.Kind; k == question.KindAsk || k == "run_command" {
			users = append(users, r.Call.User)
		}
	}
	return users
}

// A program by its path is another one in another user's home.
func TestCommandsOfAnother(t *testing.T) {
	d, _ := askingFrontend(t, "user: sudoer\ncommands: {allow: [./tool, ls]}\n")
	b := d.create(t, "")
	for _, c := range []struct{ user, process, code string }{
		{"", `{"cmd":"./tool"}`, "invalid_argument"}, // allowed, and not there
		{"user", `{"cmd":"./tool"}`, "invalid_argument"},
		{"root", `{"cmd":"ls"}`, ""},
		{"root", `{"cmd":"./tool"}`, "permission_denied"},
		{"root", `{"cmd":"./tool","cwd":"/home/user"}`, "permission_denied"},
		{"", `{"cmd":"./tool","cwd":"~root"}`, "invalid_argument"},
		{"nobody", `{"cmd":"ls"}`, "unauthenticated"},
		{"nobody", `{"cmd":"./tool"}`, "unauthenticated"},
	} {
		if said, code := d.start(t, b, c.user, c.process); code != c.code {
			t.Errorf("%q starts %s: %q %s, want %s", c.user, c.process, said, code, c.code)
		}
	}
}

// Files, too, are those of whom the request names, at their home, and of no user
// whom only the account file inside knows.
func TestFilesOfAnother(t *testing.T) {
	d, _ := askingFrontend(t, "user: sudoer\nfiles: {writable: [/root, /home/user]}\n")
	b := d.create(t, "")
	octets := with(b.to(49983), "Content-Type", "application/octet-stream", "Accept-Encoding", "identity")
	rpc := with(b.to(49983), "Content-Type", "application/json")
	for _, c := range []struct{ user, home string }{{"", "/home/user"}, {"user", "/home/user"}, {"root", "/root"}, {"nobody", ""}, {"daemon", ""}} {
		file := c.home + "/of-" + c.user
		for _, call := range []struct{ method, url, body, says string }{
			{"POST", "/files?path=of-" + c.user, file, `"path":"` + file + `"`},
			{"GET", "/files?path=~/of-" + c.user, "", file},
			{"GET", "/files?path=of-" + c.user + "&username=" + c.user, "", file},
			{"POST", "/filesystem.Filesystem/Stat", `{"path":"of-` + c.user + `"}`, `"path":"` + file + `"`},
			{"POST", "/filesystem.Filesystem/Stat", `{"path":"~"}`, `"path":"` + c.home + `"`},
			{"POST", "/filesystem.Filesystem/ListDir", `{"depth":1}`, `"path":"` + file + `"`},
			{"POST", "/filesystem.Filesystem/ListDir", `{"path":"./","depth":1}`, `"path":"` + file + `"`},
			{"POST", "/filesystem.Filesystem/MakeDir", `{"path":"dir-` + c.user + `"}`, `"path":"` + c.home + `/dir-` + c.user + `"`},
			{"POST", "/filesystem.Filesystem/CreateWatcher", `{"path":"dir-` + c.user + `"}`, "watcherId"},
			{"POST", "/filesystem.Filesystem/Remove", `{"path":"dir-` + c.user + `"}`, "{}"},
		} {
			h := octets
			if strings.HasPrefix(call.url, "/filesystem") {
				h = rpc
			}
			if !strings.Contains(call.url, "username") {
				h = as(c.user, h)
			}
			status, answer, _ := d.raw(t, call.method, call.url, h, call.body)
			if c.home == "" && status != 401 || c.home != "" && (status != 200 || !strings.Contains(string(answer), call.says)) {
				t.Errorf("%q: %s %s %s: %d %s", c.user, call.method, call.url, call.body, status, answer)
			}
		}
	}
}

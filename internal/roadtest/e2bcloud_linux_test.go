// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// policyOfDocs is the policy file that docs/e2b.md has people copy.
func policyOfDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/e2b.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "```yaml\n# caisson policy, preset e2b")
	text, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("docs/e2b.md has no such file")
	}
	file := filepath.Join(t.TempDir(), "e2b.yaml")
	if err := os.WriteFile(file, []byte("#"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// cloud is a daemon that serves two keys: mine, as E2B's cloud would, and one that
// may reach a name.
type cloud struct {
	*daemon
	mine, named string
}

func startCloud(t *testing.T) *cloud {
	t.Helper()
	dir := t.TempDir()
	named := filepath.Join(dir, "named.yaml")
	if err := os.WriteFile(named, []byte("version: 1\nnetwork: {allow: [good.example.com]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, state := caissonBinary(t), filepath.Join(dir, "state")
	key := func(args ...string) string {
		out, err := exec.Command(binary, append([]string{"keys", "create", "--state", state}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	c := &cloud{mine: key("--name", "mine"), named: key("--name", "named", "--policy", "named")}
	c.daemon = startDaemon(t, binary, state, "--policy", policyOfDocs(t), "--policy", "named="+named, "--pool", "0", "--grace", "0")
	return c
}

// create asks for a sandbox with more in its body.
func (c *cloud) create(t *testing.T, key, more string) (id string, status int) {
	t.Helper()
	var made struct {
		ID string `json:"sandboxID"`
	}
	status = c.ask(t, key, "POST", "/v2/sandboxes", `{"templateID":"base"`+more+`}`, &made)
	return made.ID, status
}

// run is what a line says, as the user or as root by name.
func (c *cloud) run(t *testing.T, key, id, user, line string) (string, int) {
	t.Helper()
	q := map[string]any{"command": []string{"sh", "-c", line}}
	if user != "" {
		q["user"] = user
	}
	body, _ := json.Marshal(q)
	var res struct {
		Stdout string `json:"stdout"`
	}
	status := c.ask(t, key, "POST", "/v1/sandboxes/"+id+"/exec", string(body), &res)
	return strings.TrimSpace(res.Stdout), status
}

// reached are those of three numbers, and of a name, that answer.
func (c *cloud) reached(t *testing.T, key, id string) string {
	t.Helper()
	got, status := c.run(t, key, id, "", `for a in `+goodAddr+` `+evilAddr+` `+ourAddr+` good.example.com; do
		curl -sS -m 20 http://$a/ 2>/dev/null | grep -q ' host' && printf '%s ' $a
	done; true`)
	if status != 200 {
		t.Fatalf("exec: %d", status)
	}
	return got
}

// The policy of docs/e2b.md gives E2B's clients what they expect of E2B's own cloud:
// the user, root by name, their own variables, and the internet, of which they choose
// addresses; and nothing that the internet is not.
func TestE2BCloud(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		c := startCloud(t)
		var own atomic.Int32 // what reached this host
		l, err := net.Listen("tcp", ourAddr+":80")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				own.Add(1)
				conn.Close()
			}
		}()
		t.Run("user", func(t *testing.T) {
			id, status := c.create(t, c.mine, `,"envVars":{"ANY_NAME":"x"}`)
			if status != 201 {
				t.Fatal(status)
			}
			if got, _ := c.run(t, c.mine, id, "", "id -un; echo $HOME $ANY_NAME; sudo id -u"); got != "user\n/home/user x\n0" {
				t.Errorf("the user says %q", got)
			}
			if got, _ := c.run(t, c.mine, id, "root", "id -u; echo $HOME"); got != "0\n/root" {
				t.Errorf("root says %q", got)
			}
			id, _ = c.create(t, c.named, "")
			if _, status := c.run(t, c.named, id, "root", "id"); status != 403 {
				t.Errorf("root under a silent policy: %d", status)
			}
			if got, _ := c.run(t, c.named, id, "", "sudo id -u || id -u"); got != "1000" {
				t.Errorf("sudo under a silent policy: %q", got)
			}
			if _, status := c.create(t, c.named, `,"envVars":{"ANY_NAME":"x"}`); status != 403 {
				t.Errorf("a variable under a silent policy: %d", status)
			}
		})
		t.Run("addresses", func(t *testing.T) {
			only := func(list string) string { return `"allowOut":[` + list + `],"denyOut":["0.0.0.0/0"]` }
			for body, want := range map[string]string{
				``:                               goodAddr + " " + evilAddr + " good.example.com",
				only(`"` + goodAddr + `"`):       goodAddr,
				only(`"93.184.216.0/24"`):        goodAddr + " " + evilAddr, // but not this host
				only(`"` + ourAddr + `"`):        "",
				only(`"good.example.com"`):       "good.example.com",
				`"denyOut":["` + evilAddr + `"]`: goodAddr + " good.example.com",
			} {
				id, status := c.create(t, c.mine, `,"network":{`+body+`}`)
				if status != 201 {
					t.Errorf("{%s}: %d", body, status)
					continue
				}
				if got := c.reached(t, c.mine, id); got != want {
					t.Errorf("{%s}: it reaches %q, want %q", body, got, want)
				}
			}
			id, _ := c.create(t, c.mine, `,"network":{`+only(`"`+evilAddr+`"`)+`}`)
			for _, step := range []struct{ body, want string }{{only(`"` + goodAddr + `"`), goodAddr}, {only(`"` + ourAddr + `/32"`), ""}, {`"denyOut":["0.0.0.0/0"]`, ""}, {only(`"` + evilAddr + `"`), evilAddr}} {
				if status := c.ask(t, c.mine, "PUT", "/sandboxes/"+id+"/network", "{"+step.body+"}", nil); status != 204 {
					t.Errorf("change to {%s}: %d", step.body, status)
				}
				if got := c.reached(t, c.mine, id); got != step.want {
					t.Errorf("after {%s} it reaches %q", step.body, got)
				}
			}
			for _, a := range []string{
				"10.0.0.1", "172.16.0.0/12", "192.168.1.1", "127.0.0.1", "169.254.169.254", "168.63.129.16", "100.64.0.1", "0.0.0.0", "224.0.0.1", "198.18.0.1",
				"100.0.0.0/8", "168.0.0.0/8", "0.0.0.0/1", "172.0.0.0/8", "::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::ffff:0:0/96", "64:ff9b::808:808", "2002:808:808::1", "2001::1", "fd00:ec2::254", "fe80::1",
				"2001::/16", "8.8.8.8%eth0", "public:8.8.8.8", "010.0.0.1", "134744072", "host.caisson.internal", "internet:25",
			} {
				if _, status := c.create(t, c.mine, `,"network":{`+only(`"`+a+`"`)+`}`); status != 403 && status != 400 {
					t.Errorf("%s: %d", a, status)
				}
				if status := c.ask(t, c.mine, "PUT", "/sandboxes/"+id+"/network", "{"+only(`"`+a+`"`)+"}", nil); status != 403 && status != 400 {
					t.Errorf("change to %s: %d", a, status)
				}
			}
			if got := c.reached(t, c.mine, id); got != evilAddr {
				t.Errorf("after refused changes it reaches %q", got)
			}
		})
		t.Run("names", func(t *testing.T) { // a list of names opens no number
			id, status := c.create(t, c.named, "")
			if status != 201 {
				t.Fatal(status)
			}
			if got := c.reached(t, c.named, id); got != "good.example.com" {
				t.Errorf("it reaches %q", got)
			}
			for _, a := range []string{goodAddr, "93.184.216.0/24", "8.8.8.8", "0.0.0.0/0"} {
				if _, status := c.create(t, c.named, `,"network":{"allowOut":["`+a+`"],"denyOut":["0.0.0.0/0"]}`); status != 403 {
					t.Errorf("%s: %d", a, status)
				}
			}
		})
		if n := own.Load(); n > 0 {
			t.Errorf("%d connections reached this host", n)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The program hands its arguments to the script, for every user that starts it;
// as root it has all ids of root by then.
func TestSudoProgram(t *testing.T) {
	if _, ok := sudoCode[runtime.GOARCH]; !ok {
		t.Fatalf("no sudo is written for %s", runtime.GOARCH)
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, which alone takes root's ids; the level's tests run the program as root's")
	}
	dir := t.TempDir()
	script, program := filepath.Join(dir, "script"), filepath.Join(dir, "sudo")
	if err := os.WriteFile(script, []byte(`echo "$(id -u):$(id -G):$A"; for a; do echo "<$a>"; done`), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := sudoProgram(runtime.GOARCH, script)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"a b", "", "*"}} {
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"A=x", "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		want := "0:0:x\n"
		for _, a := range args {
			want += "<" + a + ">\n"
		}
		if err != nil || string(out) != want {
			t.Errorf("%q: %q, %v; want %q", args, out, err, want)
		}
	}
	if _, err := sudoProgram("mips", script); err == nil {
		t.Error("there is one for every processor")
	}
}

// The script does what sudo does with the same arguments.
func TestSudoScript(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	text := strings.NewReplacer("@NAME@", "user", "@UID@", "1000", "@GID@", "1000").Replace(sudoScript)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"echo a  b", "a b\n"},
		{"-n -- echo -n", ""},
		{"-nE printenv FOO", "bar\n"},
		{"-E printenv FOO", "bar\n"},
		{"--preserve-env=FOO printenv FOO", "bar\n"},
		{"printenv FOO", "exit status 1"},
		{"--preserve-env=FOO;id printenv FOO", "exit status 1"},
		{"X=1 printenv X", "1\n"},
		{"X=1 nothere", "sudo: nothere: command not found\nexit status 1"},
		{"printenv SUDO_USER", "user\n"},
		{"printenv HOME", "/root\n"},
		{"-u root printenv USER", "root\n"},
		{"-uroot printenv USER", "root\n"},
		{"--user=root printenv USER", "root\n"},
		{"-u #0 printenv USER", "root\n"},
		{"-u nobody-at-all true", "sudo: unknown user nobody-at-all\nexit status 1"},
		{"-u", "sudo: option requires an argument -- '-u'\nexit status 1"},
		{"--what true", "sudo: unknown option --what\nexit status 1"},
		{"-v", ""},
		{"-k", ""},
		{"-i printenv HOME", "/root\n"},
		{"-s printenv LOGNAME", "root\n"},
		{"", "usage: sudo [-EHinSs] [-u user] [VAR=value] command\nexit status 1"},
	} {
		if strings.HasPrefix(c.args, "-i ") && os.Geteuid() != 0 {
			continue // a login shell says so when it may not read root's files
		}
		cmd := exec.Command("/bin/sh", append([]string{script}, strings.Fields(c.args)...)...)
		cmd.Env = []string{"FOO=bar", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/user"}
		out, err := cmd.CombinedOutput()
		got := string(out)
		if err != nil {
			got += err.Error()
		}
		if got != c.want {
			t.Errorf("sudo %s: %q, want %q", c.args, got, c.want)
		}
	}
}

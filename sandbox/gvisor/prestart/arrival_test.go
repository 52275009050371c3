// SPDX-License-Identifier: Apache-2.0

//go:build linux

package prestart

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A half that has arrived says who it is.
func TestMain(m *testing.M) {
	if len(os.Args) > 0 && strings.HasPrefix(os.Args[0], "runsc-") {
		status, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("Argv:\t" + strings.Join(os.Args, " ") + "\n" + string(status))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWanted(t *testing.T) {
	const before = "runsc-gofer --rootless=true gofer --spec-fd=5 --sync-userns-fd=9 --uid=1000 --gid=1001 sbx"
	got, ok := wanted(strings.Fields(before))
	if !ok || got.ready != 9 || got.uid != 1000 || got.gid != 1001 || strings.Join(got.argv, " ") != strings.Replace(before, "=9", "=-1", 1) {
		t.Errorf("wanted = %+v, %v", got, ok)
	}
	if got, ok := wanted([]string{"runsc-gofer", "gofer", "--sync-userns-fd=9", "sbx"}); !ok || got.uid != 0 || got.gid != 0 {
		t.Errorf("root there: %+v, %v", got, ok)
	}
	if got, ok := wanted(strings.Fields(kernelLine + " --uid=1000 --gid=1001 sbx")); !ok || !got.kernel || got.ready != 3 || got.uid != 1000 || got.gid != 1001 {
		t.Errorf("the kernel: %+v, %v", got, ok)
	}
	for _, argv := range []string{
		kernelLine + " --gid=1000 sbx", // root there
		"runsc-sandbox boot --apply-caps=false --setup-root --sync-userns-fd=9 --uid=1000 sbx",
		"runsc-sandbox boot --apply-caps=true --sync-userns-fd=9 --uid=1000 sbx",
		"runsc-sandbox boot --apply-caps=true --setup-root --sync-userns-fd=-1 --uid=1000 sbx",
		"runsc-gofer gofer --spec-fd=5 sbx",
		"runsc-gofer gofer --sync-userns-fd=-1 --uid=1000 sbx",
		"runsc-gofer gofer --sync-userns-fd=x --uid=1000 sbx",
		"runsc-gofer gofer --sync-userns-fd=9 --uid=x sbx",
		"runsc-gofer gofer --sync-userns-fd=9 --gid=-1 sbx",
		"runsc-sandbox boot --sync-userns-fd=9 --uid=1000 sbx",
		"caisson run -- --sync-userns-fd=9",
		"",
	} {
		if got, ok := wanted(strings.Fields(argv)); ok {
			t.Errorf("wanted(%q) = %+v", argv, got)
		}
	}
}

// Command lines of gVisor's gofer and sentry, up to who they will be.
const (
	goferLine  = "runsc-gofer gofer --sync-userns-fd=3"
	kernelLine = "runsc-sandbox boot --apply-caps=true --setup-root --sync-userns-fd=3"
)

// arrived starts this program as gVisor starts its gofer and sentry, and ends the wait
// with data.
func arrived(t *testing.T, line, data string, args ...string) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append(strings.Fields(line), args...),
		ExtraFiles: []*os.File{r}, Stdout: &out, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_CHOWN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
		},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := w.WriteString(data); err != nil {
		t.Error(err)
	}
	w.Close()
	err = cmd.Wait()
	return out.String(), err
}

func TestArrives(t *testing.T) {
	for name, tc := range map[string]struct{ line, bounding, others string }{
		// What it keeps, and what gVisor will drop: chown, setuid, setgid, sys_chroot, sys_admin.
		"file server": {goferLine, "000000000004001f", "00000000002400c1"},
		// What makes its root: sys_chroot, sys_admin.
		"kernel": {kernelLine, "0000000000000000", "0000000000240000"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := arrived(t, tc.line, "", "--uid=1000", "--gid=1000", "sbx")
			if err != nil {
				t.Fatal(err)
			}
			field := func(name string) string {
				m := regexp.MustCompile(`(?m)^` + name + `:\s*(.*)$`).FindStringSubmatch(out)
				if m == nil {
					t.Fatalf("no %s in %q", name, out)
				}
				return m[1]
			}
			want := strings.Fields(strings.Replace(tc.line, "=3", "=-1", 1) + " --uid=1000 --gid=1000 sbx")
			if got := strings.Fields(field("Argv")); !slices.Equal(got, want) {
				t.Errorf("it was executed as %q", got)
			}
			for name, want := range map[string]string{
				"Uid": "1000\t1000\t1000\t1000", "Gid": "1000\t1000\t1000\t1000",
				"CapBnd": tc.bounding, "CapEff": tc.others, "CapPrm": tc.others, "CapAmb": tc.others,
			} {
				if got := field(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestDoesNotArrive(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		args []string
	}{
		"something is written":     {"x", []string{"--uid=1000", "--gid=1000"}},
		"nobody has that number":   {"", []string{"--uid=1001", "--gid=1000"}},
		"no group has that number": {"", []string{"--uid=1000", "--gid=1001"}},
	} {
		for _, line := range []string{goferLine, kernelLine} {
			out, err := arrived(t, line, tc.data, tc.args...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 125 || out != "" {
				t.Errorf("%s: %v, %q", name, err, out)
			}
		}
	}
}

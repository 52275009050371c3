// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// These cases need a name server and hosts with public addresses, which this
// host's internet is not asked to be. A second caisson is started in a network
// namespace where the suite is all of that (probe.Internet).

const (
	goodHost = "caisson-attack-good.test" // is allowed
	evilHost = "caisson-attack-evil.test" // is not
	wildHost = "caisson-attack-wild.test" // everything below it is
	// publicAddress is what names lead to there, and likeAddress its neighbour.
	publicAddress = "93.184.215.14"
	likeAddress   = "93.184.215.15"
)

var errNoInternet = errors.New("no network namespace can be made here")

// wired says whether a sandbox may have a network here at all: why not, when not.
func (s *suite) wired(ctx context.Context) *finding {
	_, f := s.tryWire(ctx)
	return f
}

// tryWire is wired, and what held in the sandbox that tried it.
func (s *suite) tryWire(ctx context.Context) (held sandbox.Posture, f *finding) {
	sc := s.begin(ctx, func(c *session.Call) { c.Network = []string{goodHost} }, probe.ModeNetwork, `{}`)
	err := sc.wait(probe.CaseReady)
	sc.end()
	if err == nil {
		if sc.res != nil {
			held = sc.res.Posture
		}
		return held, nil
	}
	cannot := unable(err)
	return held, &cannot
}

// onInternet has a second caisson run knocks, with flags, and says what that
// internet heard.
func (s *suite) onInternet(ctx context.Context, plan probe.Knocks, flags ...string) (*probe.Heard, error) {
	text, _ := json.Marshal(plan)
	again := s.Again(slices.Concat([]string{"run", "--isolation", s.Isolation, "--timeout", probeTimeout.String(), "--mount", s.Program + ":" + probe.AtProbe}, flags,
		[]string{"--", probe.AtProbe, probe.Word, probe.ModeNetwork, string(text), s.nonce})...)
	in, _ := json.Marshal(probe.Internet{Argv: append([]string{again.Path}, again.Args[1:]...), Address: publicAddress, Ports: []int{80, 443}})
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Program, probe.Word, probe.ModeInternet, string(in), s.nonce)
	cmd.Env, cmd.SysProcAttr = again.Env, apart()
	var errs tail
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) {
			return nil, errNoInternet
		}
		return nil, fmt.Errorf("%w: %s", err, errs.text())
	}
	heard := &probe.Heard{}
	if err := json.Unmarshal(bytes.TrimSpace(out), heard); err != nil {
		return nil, err
	}
	if heard.Fault != "" {
		return nil, fmt.Errorf("%w: %s", errNoInternet, heard.Fault)
	}
	return heard, nil
}

// apart has a process start in a network namespace of its own, as the same user.
func apart() *syscall.SysProcAttr {
	if os.Geteuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE},
	}
}

// elsewhere judges what an internet heard. What is allowed must have arrived there,
// by its name, or else nothing was shown.
func elsewhere(heard *probe.Heard, err error, mark string, bad func() string) finding {
	if errors.Is(err, errNoInternet) {
		return finding{verdict: NotApplicable, reason: err.Error()}
	}
	if err != nil {
		return unable(err)
	}
	if why := bad(); why != "" {
		return finding{verdict: Breach, reason: why}
	}
	if mark == "" {
		return pass()
	}
	if !slices.ContainsFunc(heard.Connections, func(c probe.HeardConn) bool { return strings.Contains(c.Bytes, mark) }) {
		return finding{verdict: Unclear, reason: fmt.Sprintf("the request that is allowed did not arrive; the name server was asked for %q: %s %s",
			heard.Queries, heard.Ended, strings.Join(strings.Fields(heard.Said), " "))}
	}
	return pass()
}

// allowedKnock is the one that must arrive.
func (s *suite) allowedKnock() (k probe.Knock, mark string) {
	mark = "allowed-" + s.nonce
	return probe.Knock{What: "what is allowed", Must: true, To: goodHost + ":80", Bytes: request("/"+mark, goodHost)}, mark
}

// tunnel asks the sandbox's resolver for names that say something, as who owns a
// name server would have it. Not one of them may reach a name server.
func (s *suite) tunnel(ctx context.Context) finding {
	if s.Again == nil {
		return finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	if f := s.wired(ctx); f != nil {
		return *f
	}
	word := "d" + s.random[:24]
	var knocks []probe.Knock
	for _, name := range []string{word + "." + evilHost, word + "." + goodHost, word[:12] + ".x" + word + "." + evilHost, strings.ToUpper(word) + "." + evilHost, word + "." + wildHost, word} {
		for _, kind := range []uint16{1, 2, 5, 10, 12, 15, 16, 28, 33, 65, 255} { // A, NS, CNAME, NULL, PTR, MX, TXT, AAAA, SRV, HTTPS, ANY
			knocks = append(knocks, probe.Knock{What: fmt.Sprintf("ask for %s, type %d", name, kind), To: name, Query: kind})
		}
	}
	for _, server := range []string{"8.8.8.8:53", "198.18.0.1:53", publicAddress + ":53", "127.0.0.1:53", "127.0.0.53:53"} {
		asked := "\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + string(rune(len(word))) + word + "\x04test\x00\x00\x01\x00\x01"
		knocks = append(knocks,
			probe.Knock{What: "ask " + server, To: server, Bytes: asked, UDP: true},
			probe.Knock{What: "ask " + server + " over TCP", To: server, Bytes: "\x00" + string(rune(len(asked))) + asked})
	}
	knocks = append(knocks, probe.Knock{What: "connect to such a name", To: word + "." + evilHost + ":80", Bytes: request("/", evilHost)})
	allowed, mark := s.allowedKnock()
	said := func(heard *probe.Heard) func() string {
		return func() string {
			for _, name := range heard.Queries {
				if strings.Contains(strings.ReplaceAll(name, ".", ""), word) {
					return "a name server was asked for what code inside had to say: " + name
				}
			}
			for _, c := range heard.Connections {
				if strings.Contains(strings.ToLower(c.Bytes), word) {
					return "a name server at " + c.To + " heard what code inside had to say"
				}
			}
			return ""
		}
	}
	heard, err := s.onInternet(ctx, probe.Knocks{Case: "N07", Resolver: resolver, List: append([]probe.Knock{allowed}, knocks...)},
		"--allow", goodHost, "--allow", "*."+wildHost)
	if f := elsewhere(heard, err, mark, said(heard)); f.verdict != Pass {
		return f
	}
	heard, err = s.onInternet(ctx, probe.Knocks{Case: "N07", Resolver: resolver, List: knocks})
	return elsewhere(heard, err, "", said(heard))
}

// pinned goes to the addresses of an allowed host without having asked for its
// name: whose they are then is not known.
func (s *suite) pinned(ctx context.Context) finding {
	if s.Again == nil {
		return finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	if f := s.wired(ctx); f != nil {
		return *f
	}
	allowed, mark := s.allowedKnock()
	word := "pinned-" + s.nonce
	knocks := func() (list []probe.Knock) {
		for _, a := range []string{publicAddress, likeAddress, "198.18.0.99", "198.19.255.254"} {
			list = append(list,
				probe.Knock{What: "a request to " + a, To: a + ":80", Bytes: request("/"+word, goodHost)},
				probe.Knock{What: "TLS to " + a, To: a + ":443", TLS: goodHost, Bytes: word},
				probe.Knock{What: "words to " + a, To: a + ":80", Bytes: word})
		}
		return list
	}
	// Before its name is asked for, and after.
	list := append(append(knocks(), allowed), knocks()...)
	heard, err := s.onInternet(ctx, probe.Knocks{Case: "N12", Resolver: resolver, List: list}, "--allow", goodHost)
	return elsewhere(heard, err, mark, func() string {
		for _, c := range heard.Connections {
			if !strings.Contains(c.Bytes, mark) {
				return "an address that no name had led to was connected to: " + c.To
			}
		}
		return ""
	})
}

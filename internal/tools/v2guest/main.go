// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command v2guest gives the tests a Linux with pure cgroup v2, plain or under
// systemd, on any machine: a QEMU guest without KVM that boots in seconds.
//
//	v2guest test [REGEXP]               the suite of make test-v2, or a part: systemd/root/service
//	v2guest conformance [REGEXP]        that of make conformance-v2: tiny/root/gvisor/Network
//	v2guest image                       only makes the guest's image, once
//	v2guest run [-init systemd] [-as user] [-f FILE]... -- CMD ARG...
//
// Without a command, run takes lines of a shell from standard input, one after
// the other, all in one guest.
//
// One static program is all three parts: the host's tool, the first process of
// the initial ramdisk (as /init), and the agent that runs commands in the guest.
// The guest has no network and no disk of its own: a read-only image of Debian
// under an overlay in memory, files handed in as a tar on a second disk, an
// ext4 scratch disk, and a virtio serial port on which the agent speaks JSON.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	// The initial ramdisk starts us as /init, and /init starts the rest by name.
	if os.Getpid() == 1 || filepath.Base(os.Args[0]) == agentName {
		guestMain()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := hostMain(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "v2guest:", err)
		code = 1
	}
	os.Exit(code)
}

func hostMain(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("what? test, conformance, image or run")
	}
	switch args[0] {
	case "image":
		img, err := makeImage(ctx)
		if err == nil {
			fmt.Println(img.dir)
		}
		return 0, err
	case "run":
		return runOne(ctx, args[1:])
	case "test", "conformance":
		all := conformance()
		if args[0] == "test" {
			all = checks()
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, hardStop)
			defer cancel()
		}
		part, err := regexp.Compile(strings.Join(args[1:], "|"))
		if err != nil {
			return 0, err
		}
		return 0, runSuite(ctx, all, part)
	}
	return 0, fmt.Errorf("%q: not test, conformance, image or run", args[0])
}

// runOne boots a guest for one command and ends with its exit code, or for those
// of standard input.
func runOne(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	initName := flags.String("init", "tiny", "tiny or systemd")
	as := flags.String("as", "root", strings.Join(settings(), ", "))
	var files []string
	flags.Func("f", "a file to put into /job; may be given again", func(f string) error {
		files = append(files, f)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2, nil // flag has said why
	}
	img, err := makeImage(ctx)
	if err != nil {
		return 1, err
	}
	guest, err := boot(ctx, img, *initName, files)
	if err != nil {
		return 1, err
	}
	defer guest.Close()
	run := func(argv ...string) (int, error) {
		return guest.Run(ctx, Command{As: setting(*as), Argv: argv}, os.Stdout, os.Stderr)
	}
	if flags.NArg() > 0 {
		return run(flags.Args()...)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		code, err := run("sh", "-c", lines.Text())
		if err != nil {
			return 1, err
		}
		fmt.Fprintf(os.Stderr, "v2guest: exit code %d\n", code)
	}
	return 0, lines.Err()
}

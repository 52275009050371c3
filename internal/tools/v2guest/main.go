// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command v2guest gives the tests a Linux with pure cgroup v2, plain or under
// systemd, on any machine: a QEMU guest without KVM that boots in seconds.
//
//	v2guest test                        the suite of make test-v2
//	v2guest conformance                 that of make conformance-v2
//	v2guest image                       only makes the guest's image, once
//	v2guest run [-init systemd] [-as user] [-f FILE]... -- CMD ARG...
//
// One static program is all three parts: the host's tool, the first process of
// the initial ramdisk (as /init), and the agent that runs commands in the guest.
// The guest has no network and no disk of its own: a read-only image of Debian
// under an overlay in memory, files handed in as a tar on a second disk, an
// ext4 scratch disk, and a virtio serial port on which the agent speaks JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
	case "test":
		return 0, runSuite(ctx, checks())
	case "conformance":
		return 0, runSuite(ctx, conformance())
	}
	return 0, fmt.Errorf("%q: not test, conformance, image or run", args[0])
}

// runOne boots a guest for one command and ends with its exit code.
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
	if flags.NArg() == 0 {
		return 2, errors.New("run what? put the command after --")
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
	done, err := guest.Run(ctx, Command{As: setting(*as), Argv: flags.Args()}, os.Stdout, os.Stderr)
	return done, err
}

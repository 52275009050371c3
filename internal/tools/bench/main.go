// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures how fast caisson starts what it runs, side by side
// with a stock runsc built from the very module that caisson embeds.
//
//	bench [-short] [-n PAIRS] [-rows RE] [-soak TIME [-idle N] [-burst N]] [-o FILE]
//
// Runs of the two sides alternate (A B, B A, …), so that what else the machine
// does meets both alike, and so that each follows itself as often as the other.
// Figures are medians. Nothing is asserted: a table is printed, with what it was
// measured on, and the goals beside it for the reader to compare.
//
// The tool is one of the programs that embed caisson: the row about the driver
// runs sandboxes from this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
)

func main() {
	caisson.Reexec()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	done, err := embeds(ctx, os.Args)
	if !done {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	caisson, runsc string        // the two binaries
	carrying       string        // this program as caisson is built, with the engine packed in it
	pairs          int           // interleaved runs of each side of a row
	rounds         int           // the same where one run starts many sandboxes
	flood          int64         // bytes that the flooding program prints
	soak           time.Duration // how long the loop of bench-soak takes; 0 is the other rows
	idle           int           // sandboxes that do nothing in it
	burst          int           // runs of the burst in it
	sdk            string        // where E2B's client is installed
	rows           *regexp.Regexp
	out            string
}

func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{flood: 10e9}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.caisson, "caisson", "bin/caisson", "the binary to measure")
	fs.StringVar(&o.runsc, "runsc", ".cache/bench/runsc", "the stock runsc; built there from go.mod's gVisor unless it is of that version")
	fs.StringVar(&o.carrying, "carrying", ".cache/bench/carrying", "this program, built with the tags that caisson is built with")
	fs.IntVar(&o.pairs, "n", 40, "interleaved pairs of runs for each row")
	fs.StringVar(&o.sdk, "sdk", "api/e2b/testdata/sdk", "where E2B's client for Node.js is installed, with bench.mjs beside it")
	fs.DurationVar(&o.soak, "soak", 0, "measure what many sandboxes leave and cost instead, in a loop of so long")
	fs.IntVar(&o.idle, "idle", 200, "sandboxes that do nothing, with -soak")
	fs.IntVar(&o.burst, "burst", 2000, "runs of a burst with bad ones among them, with -soak")
	rows := fs.String("rows", "", "only rows whose name matches this regular expression")
	short := fs.Bool("short", false, "a quarter of the runs, and 1 GB instead of 10")
	fs.StringVar(&o.out, "o", "", "write the table to this file too")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 || o.pairs < 1 || o.pairs > 10000 {
		return nil, errors.New("it takes flags only, and -n from 1 to 10000; see -help")
	}
	if *short {
		o.pairs, o.flood = max(o.pairs/4, 1), 1e9
	}
	o.rounds = max(o.pairs/5, 2)
	var err error
	o.rows, err = regexp.Compile(*rows)
	return o, err
}

func run(ctx context.Context, args []string, stdout, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	if o.soak == 0 {
		if err := buildRunsc(ctx, o.runsc); err != nil {
			return err
		}
	}
	s, err := newStage(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	t := &table{about: s.about(ctx)}
	t.about = append(t.about, "load before: "+loadAverage())
	for _, b := range s.list() {
		if !o.rows.MatchString(b.name) {
			continue
		}
		fmt.Fprintln(progress, "bench:", b.name)
		r := b.measure(ctx)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		r.what = b.name
		t.rows = append(t.rows, r)
	}
	t.about = append(t.about, "load after: "+loadAverage())
	if _, err := io.WriteString(stdout, t.String()); err != nil {
		return err
	}
	if o.out == "" {
		return nil
	}
	return os.WriteFile(o.out, []byte(t.String()), 0o644)
}

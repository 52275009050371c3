// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

func (a *app) auditVerify() *cobra.Command {
	var asJSON bool
	var kept, heads []string
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Find out whether the record was edited, cut off or reordered",
		Long: `Read the whole record and say what was edited, removed, inserted, reordered or cut
off, and where. A head or checkpoint that was kept elsewhere (caisson audit head, the
last line of an export) also finds an older copy that was put back, and a record
that was begun anew. The exit code is 1 when something is wrong. It works on a disk
that is full or cannot be written to, too.`,
		Example: `  caisson audit verify
  caisson audit verify --head 812:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
  caisson audit verify --checkpoint kept.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			points, err := readCheckpoints(kept)
			if err != nil {
				return err
			}
			for _, text := range heads {
				c, err := audit.ParseHead(text)
				if err != nil {
					return err
				}
				points = append(points, c)
			}
			return a.withLog(contextOf(cmd), false, func(log *audit.Log) error {
				r, err := log.Verify(contextOf(cmd), points...)
				if err != nil {
					return err
				}
				if len(r.Findings) > 0 {
					a.code = exitFault
				}
				if asJSON {
					a.printJSON(r)
					return nil
				}
				for _, f := range r.Findings {
					fmt.Fprintln(a.out, printable(f.String()))
				}
				if len(r.Findings) == 0 {
					fmt.Fprintf(a.out, "%d records, all in order\n", r.Records)
				}
				return nil
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringArrayVar(&kept, "checkpoint", nil, "hold the record against a checkpoint kept elsewhere: `FILE`")
	cmd.Flags().StringArrayVar(&heads, "head", nil, "hold the record against a `HEAD` kept elsewhere, as caisson audit head prints it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// readCheckpoints reads files that hold a checkpoint, or end with the line of
// one, as an export does.
func readCheckpoints(files []string) ([]audit.Checkpoint, error) {
	var points []audit.Checkpoint
	for _, name := range files {
		bad := func(problem string, cause error) error {
			return &sandbox.Error{Op: "--checkpoint " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid, Problem: problem,
				Hint: "keep the last line of caisson audit export", Cause: cause}
		}
		last, err := lastLine(name)
		if err != nil {
			return nil, bad("it cannot be read", err)
		}
		var line struct{ Checkpoint *audit.Checkpoint }
		if err := json.Unmarshal(last, &line); err != nil || line.Checkpoint == nil {
			return nil, bad("it holds no checkpoint", err)
		}
		points = append(points, *line.Checkpoint)
	}
	return points, nil
}

// lastLine is the last line of a file that says something.
func lastLine(name string) (last []byte, err error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, maxLine); lines.Scan(); {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			last = append(last[:0], line...)
		}
	}
	return last, lines.Err()
}

const maxLine = 64 << 20 // bytes; that of a record has its program and what it wrote

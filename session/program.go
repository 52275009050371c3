// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// load reads the code that the call brings along or names, and judges it. Its
// digest is what the policy and the record see; the very bytes that were judged
// are what runs.
func (s *source) load(c *Call, host *environment.Host) error {
	if c.File != "" {
		src, err := s.readFile(c.File, c.FileLanguage, host)
		if err != nil {
			return err
		}
		c.Source = src
	}
	if c.Source == nil {
		return nil
	}
	p, err := c.Source.plan()
	if err != nil {
		return err
	}
	if p.direct && c.File == "" {
		return &sandbox.Error{Op: "source " + sandbox.Quoted(c.Source.Name), Kind: sandbox.ErrInvalid, Problem: "it is a compiled program",
			Hint: "save it as a file and run that: caisson run ./program"}
	}
	c.Program = append(slices.Clone(p.Argv), SourceName(c, p))
	if p.direct {
		c.Program = []string{"./" + SourceName(c, p)}
	}
	if p.language == "bash" || p.language == "sh" {
		c.Script = string(c.Source.Code)
	}
	sum := sha256.Sum256(c.Source.Code)
	s.Program = &p
	c.Kind, c.Call.Language, c.Code = policy.RunCode, p.language, "sha256:"+hex.EncodeToString(sum[:])
	return nil
}

// Judged completes a wish as the pipeline does: with how its source is run. The
// language must be one of Languages.
func Judged(w policy.Wish) (*policy.Call, error) {
	c := w.Call
	if c.Kind != policy.RunCode {
		return &c, nil
	}
	call := &Call{Call: c, Source: &Source{Name: w.File, Language: c.Language, Code: []byte(w.Source)}}
	if err := new(source).load(call, nil); err != nil {
		return nil, err
	}
	if w.File != "" {
		call.Program[len(call.Program)-1] = filepath.Base(w.File)
	}
	return &call.Call, nil
}

// SourceName is the name that source has inside.
func SourceName(c *Call, p program) string {
	if c.File != "" {
		return filepath.Base(c.File)
	}
	if c.Source.Cell {
		return "cell" + p.ext
	}
	return "main" + p.ext
}

// readFile reads the file that run FILE names. It is judged like a mount: its
// contents are shown inside.
func (s *source) readFile(name, language string, host *environment.Host) (*Source, error) {
	src, err := host.Open(policy.PlanPath{Source: name}, "run", sandbox.ReadOnly)
	if err != nil {
		return nil, err
	}
	if src.Dir {
		return nil, &sandbox.Error{Op: "run " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid, Problem: "it is a directory",
			Hint: "name a file in it, and show the directory with --workspace"}
	}
	// The very object that was judged: through its handle, not by its name.
	f, err := environment.Reopen(src.File)
	if err != nil {
		return nil, &sandbox.Error{Op: "run " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid, Problem: "it may not be read", Hint: "check its permissions", Cause: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, &sandbox.Error{Op: "run " + sandbox.Quoted(name), Kind: sandbox.ErrUnavailable, Problem: "it cannot be examined", Cause: err}
	}
	code, err := ReadSource(name, f)
	if err != nil {
		return nil, err
	}
	if isELF(code) {
		if info.Mode().Perm()&0o111 == 0 {
			return nil, &sandbox.Error{Op: "run " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid, Problem: "it is a compiled program that may not be executed", Hint: "chmod +x " + name}
		}
		s.binary = src
		code = code[:min(len(code), MaxSource)] // programs may be larger than source; the record has their beginning
	}
	return &Source{Name: name, Language: language, Code: code}, nil
}

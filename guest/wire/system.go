// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"strings"
)

// ResumeRequest tells the agent about its sandbox: at its beginning, and again
// when it was restored from a checkpoint or is a copy of another one. What is
// absent stays as it is.
type ResumeRequest struct {
	// Time is the host's, in nanoseconds since 1970.
	Time int64 `json:"time,omitempty"`
	// Entropy is stirred into the kernel's pool.
	Entropy []byte `json:"entropy,omitempty"`
	// Hostname is the sandbox's name.
	Hostname string `json:"hostname,omitempty"`
	// Env replaces the variables that every process of process.Process has.
	Env map[string]string `json:"env,omitempty"`
	// Dir is where processes start whose request does not say; "" is home.
	Dir *string `json:"dir,omitempty"`
}

// Check says what is wrong with a request.
func (r *ResumeRequest) Check() error {
	switch {
	case len(r.Entropy) > 4096:
		return errors.New("there is more entropy than 4096 bytes")
	case len(r.Hostname) > 64:
		return errors.New("the hostname is longer than 64 bytes")
	case r.Dir != nil && strings.Contains(*r.Dir, "\x00"):
		return errors.New("the directory has a NUL byte")
	}
	for k, v := range r.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return fmt.Errorf("the variable %q cannot be one", k)
		}
	}
	return nil
}

// ResumeAnswer says what could not be done, by the name of a field.
type ResumeAnswer struct {
	Failed map[string]string `json:"failed,omitempty"`
}

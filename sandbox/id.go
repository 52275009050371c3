// SPDX-License-Identifier: Apache-2.0

package sandbox

import "strings"

// CheckID returns ErrInvalid unless id can be a sandbox's: "sbx_" and 16 to 64 ASCII
// letters or digits. It becomes the name of a directory, a control group and a container.
func CheckID(id string) error {
	text, ok := strings.CutPrefix(id, "sbx_")
	// A pattern would take longer to compile than a system call filter to install.
	other := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if !ok || len(text) < 16 || len(text) > 64 || strings.ContainsFunc(text, other) {
		return Errorf(ErrInvalid, "sandbox ID", `%.80q is none: it is "sbx_" and 16 to 64 letters or digits`, id)
	}
	return nil
}

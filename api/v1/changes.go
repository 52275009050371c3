// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// Changes is what is kept of what was changed in a workspace.
type Changes struct {
	ID      string   `json:"id,omitempty" doc:"Of the change set; absent where nothing was kept"`
	Digest  string   `json:"digest,omitempty" doc:"Of all that is in it"`
	Files   int      `json:"files" doc:"That were added, changed or removed"`
	Held    int      `json:"held,omitempty" doc:"That are applied only where a person names them"`
	Ignored int      `json:"ignored,omitempty" doc:"That .gitignore ignores, and that were not kept"`
	Applied []string `json:"applied,omitempty" doc:"What the policy's rules let be applied at once"`
	Problem string   `json:"problem,omitempty" doc:"Why nothing was kept or, with an id, applied"`
	Hint    string   `json:"hint,omitempty"`
}

func changesOf(c *sandbox.Changes) *Changes {
	if c == nil {
		return nil
	}
	v := Changes(*c)
	return &v
}

// ChangesWish says that changes in the workspace are to be kept.
type ChangesWish struct {
	Ignored bool `json:"ignored,omitempty" doc:"Also what .gitignore files ignore"`
}

type changesAnswer struct {
	Body struct {
		Changes *Changes `json:"changes,omitempty" doc:"Absent where nothing was changed that is kept"`
	}
}

// changes registers what keeps the changes of sandboxes.
func (s *Server) changes() {
	op := operation("POST", "/sandboxes/{id}/changes", "keepChanges", "Keep what was changed so far in the workspace of a running sandbox", http.StatusOK)
	op.Description = "The workspace is the one that the key's policy names, copy-on-write. Programs stand still meanwhile, and go on."
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		SandboxID
		Body *ChangesWish
	}) (*changesAnswer, error) {
		kept, err := s.o.Sandboxes.Handle(k, in.ID).KeepChanges(ctx, in.Body != nil && in.Body.Ignored)
		a := &changesAnswer{}
		a.Body.Changes = changesOf(kept)
		return a, err
	})
}

// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/session/persistent"
)

// Templates are the operator's: clients see which there are, and make none.

// templateAnswer is a template as clients know it. What E2B counts and we do not is
// zero there.
type templateAnswer struct {
	TemplateID    string   `json:"templateID"`
	BuildID       string   `json:"buildID"`
	BuildStatus   string   `json:"buildStatus"`
	BuildCount    int      `json:"buildCount"`
	CPUCount      int      `json:"cpuCount"`
	MemoryMB      int64    `json:"memoryMB"`
	DiskSizeMB    int64    `json:"diskSizeMB"`
	Public        bool     `json:"public"`
	Aliases       []string `json:"aliases"`
	Names         []string `json:"names"`
	CreatedAt     string   `json:"createdAt"`
	UpdatedAt     string   `json:"updatedAt"`
	CreatedBy     *string  `json:"createdBy"`
	LastSpawnedAt *string  `json:"lastSpawnedAt"`
	SpawnCount    int      `json:"spawnCount"`
	EnvdVersion   string   `json:"envdVersion"`
}

// template is one by its name. It is as old as the server: nothing else is known.
func (s *Server) template(name string) templateAnswer {
	l := persistent.LivingLimits()
	const mib = 1 << 20
	return templateAnswer{
		TemplateID: name, BuildID: noBuild, BuildStatus: "ready", BuildCount: 1, CPUCount: max(int(l.CPUs), 1), MemoryMB: l.Memory / mib, DiskSizeMB: l.Disk / mib,
		Public: true, Aliases: []string{name}, Names: []string{name}, CreatedAt: s.began, UpdatedAt: s.began, EnvdVersion: envdVersion,
	}
}

// noBuild is the build of a template that was not built here; clients take a UUID.
const noBuild = "00000000-0000-0000-0000-000000000000"

func (s *Server) listTemplates(w http.ResponseWriter, _ *http.Request, _ *persistent.Key) error {
	list := []templateAnswer{}
	for _, name := range s.o.Sandboxes.Templates() {
		list = append(list, s.template(name))
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// named is the template that a path names.
func (s *Server) named(r *http.Request, part string) (templateAnswer, error) {
	name := r.PathValue(part)
	if !slices.Contains(s.o.Sandboxes.Templates(), name) {
		return templateAnswer{}, &apiError{http.StatusNotFound, "there is no template " + api.Quoted(name)}
	}
	return s.template(name), nil
}

func (s *Server) getTemplate(w http.ResponseWriter, r *http.Request, _ *persistent.Key) error {
	t, err := s.named(r, "id")
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		templateAnswer
		Builds []struct{} `json:"builds"`
	}{t, []struct{}{}})
	return nil
}

func (s *Server) templateAlias(w http.ResponseWriter, r *http.Request, _ *persistent.Key) error {
	t, err := s.named(r, "alias")
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"templateID": t.TemplateID, "public": t.Public})
	return nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

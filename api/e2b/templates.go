// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/session/persistent"
)

// Clients see the operator's templates, and their key's own, which they build.

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

// built is a template that was built here, under all of its tags.
func (s *Server) built(t *persistent.Templates, all []image.Template) templateAnswer {
	a := s.template(all[0].Name)
	a.Public, a.Names, a.BuildID = all[0].Shared, nil, lastBuild(t, a.TemplateID)
	for _, one := range all {
		a.Names = append(a.Names, one.Name+":"+one.Tag)
		if at := one.Named.UTC().Format(time.RFC3339); a.UpdatedAt == s.began || at > a.UpdatedAt {
			a.CreatedAt, a.UpdatedAt = at, at
		}
	}
	a.BuildCount = max(len(t.Builds(a.TemplateID)), 1)
	return a
}

// templates are the key's own, those that the operator shares, and the configured ones.
func (s *Server) templates(k *persistent.Key) ([]templateAnswer, error) {
	list := []templateAnswer{}
	t := s.o.Sandboxes.TemplatesOf(k)
	for _, of := range []func() ([]image.Template, error){t.List, t.Shared} {
		all, err := of()
		if err != nil {
			return nil, err
		}
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].Name == all[0].Name {
				n++
			}
			list, all = append(list, s.built(t, all[:n])), all[n:]
		}
	}
	for _, name := range s.o.Sandboxes.Templates() {
		list = append(list, s.template(name))
	}
	return list, nil
}

func (s *Server) listTemplates(w http.ResponseWriter, _ *http.Request, k *persistent.Key) error {
	list, err := s.templates(k)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// named is the template that a path names, with a tag or without.
func (s *Server) named(r *http.Request, part string, k *persistent.Key) (templateAnswer, error) {
	list, err := s.templates(k)
	if err != nil {
		return templateAnswer{}, err
	}
	name := r.PathValue(part)
	for _, t := range list {
		if t.TemplateID == name || slices.Contains(t.Names, name) {
			return t, nil
		}
	}
	return templateAnswer{}, &apiError{http.StatusNotFound, "there is no template " + api.Quoted(name)}
}

func (s *Server) getTemplate(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	t, err := s.named(r, "id", k)
	if err != nil {
		return err
	}
	builds := []map[string]any{}
	for _, b := range s.o.Sandboxes.TemplatesOf(k).Builds(t.TemplateID) {
		ended := b.Created
		if !b.Ended.IsZero() {
			ended = b.Ended
		}
		builds = append(builds, map[string]any{
			"buildID": b.ID, "status": b.State, "createdAt": b.Created.UTC().Format(time.RFC3339), "updatedAt": ended.UTC().Format(time.RFC3339),
			"cpuCount": t.CPUCount, "memoryMB": t.MemoryMB,
		})
	}
	writeJSON(w, http.StatusOK, struct {
		templateAnswer
		Builds []map[string]any `json:"builds"`
	}{t, builds})
	return nil
}

func (s *Server) templateAlias(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	t, err := s.named(r, "alias", k)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"templateID": t.TemplateID, "public": t.Public})
	return nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
